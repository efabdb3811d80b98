"""`capreward metrics`: lists the metrics, those for photos, the facts of one, sizes, or what a checkpoint is."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reward.cli import terminal

if TYPE_CHECKING:
    from reward.metrics.base import CheckpointFacts, MetricSpec

WHICH = ("metric", "captions", "needs", "cannot see")
CHECKPOINT = ("checkpoint", "metrics", "licence", "download", "GiB", "GFLOP a caption")


def metrics(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="A metric, to see all that is known of it. With --size also several, NAME=CHECKPOINT, whose "
            "weights are not fetched, and beitscore=base and beitscore=large.",
        ),
    ] = None,
    size: Annotated[bool, typer.Option("--size", help="How large networks are, and their work for a caption.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="What a checkpoint is and why it will fail, before its weights are fetched."),
    ] = False,
    metric: Annotated[list[str] | None, typer.Option("--metric", "-m", help="As NAME.")] = None,
    purpose: Annotated[
        Literal["photos"] | None,
        typer.Option("--for", help="Only the metrics that can score photos, and the checkpoints to score them with."),
    ] = None,
) -> None:
    """List the metrics, or show one: aspects, what it needs, range, checkpoints, paper and how to cite it.

    One that needs a corpus is fitted on the data's references.

    With `_avg` behind its name, any of them scores a caption by the mean over its sentences.

    ```
    capreward metrics
    capreward metrics --for photos
    capreward metrics longclipscore
    capreward metrics vlmreward=Skywork/Skywork-VL-Reward-7B --check
    capreward metrics beitscore=base clipscore=ViT-B-32:openai --size
    ```

    GMAC counts the multiplications of linear and convolution layers for a caption of 80 tokens, in billions: what
    papers call GFLOPs, half of the floating-point operations. The products of queries, keys and values are apart.
    """
    from reward.registry import MetricSource, list_metrics, metric_spec

    names = [*(names or []), *(metric or [])]
    if names and purpose is not None:
        raise typer.BadParameter(f"leave out the metric {names[0]!r} or --for", param_hint="--for")
    if check:
        _show_checks(names)
    elif size:
        _show_sizes(names)
    elif names:
        if len(names) > 1:
            raise typer.BadParameter("several metrics go with --size", param_hint="NAME")
        _show(MetricSource.parse(names[0]).spec)
    elif purpose is not None:
        _show_for_photos([metric_spec(name) for name in list_metrics()])
    else:
        _list([metric_spec(name) for name in list_metrics()])


def _list(specs: Iterable[MetricSpec]) -> None:
    rows = []
    papers: dict[str, list[str]] = {}
    for spec in specs:
        alone = ("for drawings" if spec.checkpoints else "yes") if spec.has_embedded else "no"
        rows.append((spec.name, "\n".join(_aspects(spec)), "\n".join(_needs(spec)), _range(spec), alone))
        papers.setdefault(spec.paper, []).append(spec.name)
    _print_folded(("metric", "aspects", "needs", "range", "without a checkpoint"), rows)
    console = terminal.console(stderr=False)
    for paper, names in papers.items():
        console.print(f"{', '.join(names)}: {paper}")
    console.print("\nOne metric: capreward metrics NAME. For photos: capreward metrics --for photos")


def _print_folded(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table with its cells folded to the width of the terminal."""
    from rich.table import Table

    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    terminal.console(stderr=False).print(table, soft_wrap=False)


def _aspects(spec: MetricSpec) -> list[str]:
    short = {aspect: alias for alias, aspect in spec.aliases.items()}
    return [aspect + (f" ({short[aspect]})" if aspect in short else "") for aspect in spec.aspects]


def _needs(spec: MetricSpec) -> list[str]:
    needs = ["image"] * spec.needs_image + ["references"] * spec.needs_references + ["corpus"] * spec.needs_corpus
    return needs or ["caption only"]


def _range(spec: MetricSpec) -> str:
    return f"{spec.range[0]:g} to {spec.range[1]:g}"


def _show(spec: MetricSpec) -> None:
    from reward.metrics.options import metric_options

    facts = {
        "aspects": ", ".join(_aspects(spec)),
        "range": _range(spec),
        "needs": ", ".join(_needs(spec)),
        "options": ", ".join(f"--set {name}=" for name in metric_options(spec)),
        "captions": spec.suits,
        "cannot see": spec.blind_to,
        "by itself": "with small weights for drawings, not for photos" * spec.has_embedded * bool(spec.checkpoints),
        "install": f'pip install "capreward[{spec.extra}]"' if spec.extra else "",
        "paper": spec.paper,
    }
    _print_facts(spec.name, facts, indent=2)
    for checkpoint in spec.checkpoints:
        facts = dict(zip(CHECKPOINT[2:], _cells(checkpoint), strict=True))
        facts |= {"note": checkpoint.note, "to use it": f"-m {spec.name}={checkpoint.source}"}
        _print_facts(f"\n  {checkpoint.source}", facts, indent=4)
    if spec.citation:
        entry = "inproceedings" if "booktitle" in spec.citation else "misc"
        fields = "".join(f"  {key} = {{{value}}},\n" for key, value in spec.citation.items())
        terminal.console(stderr=False).print(f"\n@{entry}{{{spec.name},\n{fields}}}")


def _print_facts(title: str, facts: Mapping[str, str], indent: int) -> None:
    """A title and the facts that there are below it, their names in a column."""
    console = terminal.console(stderr=False)
    console.print(title, style="bold")
    width = max(map(len, facts)) + 1
    for name, value in facts.items():
        if value:
            console.print(f"{' ' * indent}{name:<{width}}{value}")


def _show_checks(names: Sequence[str]) -> None:
    """What checkpoints are; the command fails if one of them will not load."""
    from reward.cli.checkpoint_check import inspect_checkpoint

    if not names:
        raise typer.BadParameter("it needs a checkpoint, as in vlmreward=name/model", param_hint="--check")
    has_problems = False
    for name in names:
        with terminal.stdout_kept_clean():
            checkpoint = inspect_checkpoint(name)
        memory = f"{checkpoint.weight_bytes / 2**30:.2f} GiB as stored"
        if checkpoint.weights is not None:
            memory += f", {checkpoint.weights:,} numbers, mostly {checkpoint.dtype}"
        label = checkpoint.metric or "unknown"
        if checkpoint.claimed not in (None, checkpoint.metric):
            label += f", though its files are those of {checkpoint.claimed}"
        facts = {
            "metric": label,
            "files": f"{len(checkpoint.files)}, {_bytes(sum(checkpoint.files.values()))}",
            "memory": memory,
            "licence": checkpoint.licence,
        }
        for number, problem in enumerate(checkpoint.problems):
            facts["will fail" + " " * number] = problem
        _print_facts(name, facts, indent=2)
        has_problems = has_problems or bool(checkpoint.problems)
    if has_problems:
        raise typer.Exit(1)


def _show_sizes(names: Sequence[str]) -> None:
    """How large the networks of metrics are, and how much work they do for one caption."""
    from reward.cli.sizes import measure_size

    if not names:
        raise typer.BadParameter("it needs the name of a metric", param_hint="--size")
    with terminal.stdout_kept_clean():
        sizes = {name: measure_size(name) for name in names}
    rows = []
    for name, size in sizes.items():
        work = [_number(count, 1e9) for count in (size.layers, size.attention)]
        rows.append([name, _number(size.parameters, 1e6), *work])
    terminal.print_table(["metric", "million parameters", "GMAC", "GMAC of attention"], rows)


def _number(count: int | None, unit: float) -> str:
    return "not counted" if count is None else f"{count / unit:,.2f}"


def _show_for_photos(specs: Sequence[MetricSpec]) -> None:
    which, checkpoints, notes = photo_tables(specs)
    _print_folded(WHICH, which)
    terminal.print_table(CHECKPOINT, checkpoints)
    for line in notes:
        print(textwrap.fill(line, 118, subsequent_indent="  "))


def photo_tables(specs: Sequence[MetricSpec]) -> tuple[list[Any], list[Any], list[str]]:
    """Rows of which metric sees what, rows of the checkpoints with what they cost, and notes as items of a list."""
    suited = [spec for spec in specs if spec.suits]
    which: dict[tuple[str, ...], list[str]] = {}  # metrics that differ in nothing share a row
    checkpoints: dict[CheckpointFacts, list[str]] = {}
    notes: dict[str, list[str]] = {}
    for spec in sorted(suited, key=lambda spec: spec.suits):
        which.setdefault((spec.suits, ", ".join(_needs(spec)), spec.blind_to), []).append(spec.name)
        for facts in spec.checkpoints:
            checkpoints.setdefault(facts, []).append(spec.name)
            if facts.note and facts.source not in notes.setdefault(facts.note, []):
                notes[facts.note].append(facts.source)
    first = [(", ".join(names), *row) for row, names in which.items()]
    by_size = sorted(checkpoints.items(), key=lambda item: item[0].memory or math.inf)
    second = [(facts.source, ", ".join(names), *_cells(facts)) for facts, names in by_size]
    return first, second, [f"- {', '.join(sources)}: {note}." for note, sources in notes.items()]


def _cells(facts: CheckpointFacts) -> tuple[str, str, str, str]:
    work = "not counted" if facts.gflops is None else f"{facts.gflops:,.{0 if facts.gflops >= 10 else 1}f}"
    memory = "not counted" if facts.memory is None else f"{facts.memory:.2f}"
    return facts.licence, "unknown" if facts.download is None else _bytes(facts.download), memory, work


def _bytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
