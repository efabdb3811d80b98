"""`capreward inspect` and `capreward match`: what a foreign checkpoint holds, and whether two scorers score alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import options, terminal
from reward.errors import CheckpointError

if TYPE_CHECKING:
    from reward.inspection import TensorFacts

__all__ = ["info", "inspect", "match"]

Side = "A metric (NAME, or NAME=SOURCE with a folder, Hub id or address), or numbers of the data (column:NAME)."


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .safetensors file of any origin.")],
    json: options.AsJson = False,
) -> None:
    """List the tensors of a foreign checkpoint by role: the first step to loading it.

    ```
    capreward inspect vela_regressor.safetensors
    ```

    Roles are guessed from names: adapter, mode embedding, CLIP, language model, head, other. Tensors whose names differ
    in numbers only share a line. Only the header of the file is read, so that size does not matter.
    """
    from reward.inspection import ROLES, group_tensors, inspect_safetensors, lora_summary

    tensors, metadata = inspect_safetensors(file)
    totals = {role: _total([each for each in tensors if each.role == role]) for role in ROLES}
    totals = {role: total for role, total in totals.items() if total["tensors"]}
    if not tensors:
        raise CheckpointError(f"{str(file)!r} holds no tensors")
    ranks = lora_summary(tensors)
    if json:
        listed = [{**vars(each), "numbers": each.numbers, "bytes": each.bytes} for each in tensors]
        terminal.print_json(
            {"tensors": listed, "roles": totals, "total": _total(tensors), "lora_ranks": ranks, "metadata": metadata}
        )
        return
    rows = []
    for name, group in group_tensors(tensors):
        shape = " x ".join(map(str, group[0].shape)) or "one"
        numbers = sum(each.numbers for each in group)
        rows.append([name, group[0].role, str(len(group)), shape, group[0].dtype, f"{numbers:,}"])
    terminal.print_table(["tensor", "role", "count", "shape", "type", "numbers"], rows, title=file.name)
    sums = [
        [role, f"{total['tensors']:,}", f"{total['numbers']:,}", f"{total['bytes'] / 1e6:,.2f}"]
        for role, total in {**totals, "all": _total(tensors)}.items()
    ]
    terminal.print_table(["role", "tensors", "numbers", "MB"], sums)
    out = terminal.console(stderr=False)
    if ranks:
        out.print("LoRA: " + ", ".join(f"{layer} of rank {'/'.join(map(str, each))}" for layer, each in ranks.items()))
    for key, value in metadata.items():
        out.print(f"metadata {key}: {value:.300}")


def info(
    metrics: Annotated[
        list[str],
        typer.Argument(
            metavar="METRIC...",
            help="NAME, or NAME=SOURCE with a folder or Hub id; beitscore=base and beitscore=large need no weights.",
        ),
    ],
    tokens: Annotated[int, typer.Option(min=3, help="Length of the caption, in tokens of most tokenizers.")] = 80,
    json: options.AsJson = False,
) -> None:
    """Print how large the network of a metric is, and how much work it does for one caption.

    ```
    capreward info beitscore=base beitscore=large clipscore=ViT-B-32:openai
    ```

    GMAC counts the multiplications of linear and convolution layers, in billions: what papers call GFLOPs, half of the
    floating-point operations. The products of queries, keys and values come on top of it, in a column of their own.
    """
    from reward.scoring.sizes import measure_size

    with terminal.stdout_kept_clean():
        sizes = {metric: measure_size(metric, tokens=tokens) for metric in metrics}
    if json:
        terminal.print_json({metric: vars(size) for metric, size in sizes.items()})
        return
    rows = [
        [metric, f"{size.parameters / 1e6:,.2f}", f"{size.layers / 1e9:,.2f}", f"{size.attention / 1e9:,.2f}"]
        for metric, size in sizes.items()
    ]
    terminal.print_table(["metric", "million parameters", "GMAC", "GMAC of attention"], rows)


def match(
    data: options.Data,
    first: Annotated[str, typer.Argument(metavar="A", help=Side)],
    second: Annotated[str, typer.Argument(metavar="B", help=Side)],
    columns: options.InputOptions,
    device: options.DeviceOptions,
    candidate_column: options.CandidateColumn = None,
    tolerance: Annotated[
        float | None, typer.Option(min=0, help="Largest difference that is allowed; above it the exit code is 3.")
    ] = None,
    worst: Annotated[int, typer.Option(min=0, help="Rows with the largest differences to show.")] = 5,
    json: options.AsJson = False,
) -> None:
    """Score the same rows with two scorers and compare the scores.

    ```
    capreward match captions.jsonl vela=my/port remote=http://127.0.0.1:8123 --tolerance 1e-3
    capreward match captions.jsonl vela=my/port column:published
    ```

    For every aspect that both have, and for the reward: the largest and the mean absolute difference, Pearson's
    correlation, Spearman's of the ranks, Kendall's tau-b, and the rows that differ most. With --tolerance, a row that
    only one of the two can score counts as a difference, too.
    """
    from reward.metaeval.matching import match_rows

    with terminal.stdout_kept_clean():
        found = match_rows(
            data, first, second, worst=worst, candidate_column=candidate_column, **vars(columns), **vars(device)
        )
    too_far = tolerance is not None and found.exceeds(tolerance)
    if json:
        terminal.print_json({**found.to_json(), "tolerance": tolerance, "within": not too_far})
    else:
        _print(found)
    if too_far:
        lone = found.only_first + found.only_second
        message = f"error: the largest difference is {found.largest:.3g}, above the tolerance of {tolerance:g}"
        if found.largest <= (tolerance or 0):
            message = f"error: {lone} rows have a score of one side only"
        terminal.console(stderr=True).print(message, style="red")
        raise typer.Exit(3)


def _total(tensors: Sequence[TensorFacts]) -> dict[str, int]:
    return {
        "tensors": len(tensors),
        "numbers": sum(each.numbers for each in tensors),
        "bytes": sum(each.bytes for each in tensors),
    }


def _print(found: Any) -> None:
    heads = ["", "largest", "mean", "correlation", "ranks", "tau-b", "rows"]
    rows = []
    for name, each in found.aspects.items():
        alike = [f"{value:.4f}" for value in (each.correlation, each.ranks, each.tau)]
        rows.append([name, f"{each.largest:.3g}", f"{each.mean:.3g}", *alike, str(each.rows)])
    terminal.print_table(heads, rows, title=f"{found.first} and {found.second}: absolute differences")
    worst = [
        [name, str(each["row"]), *(f"{each[key]:.4g}" for key in ("first", "second", "difference"))]
        for name, aspect in found.aspects.items()
        for each in aspect.worst
    ]
    if worst:
        terminal.print_table(["aspect", "row", found.first, found.second, "difference"], worst, title="largest")
    notes = {f"by {found.first} only": found.only_first, f"by {found.second} only": found.only_second}
    for what, count in {**notes, "by neither": found.neither}.items():
        if count:
            terminal.console(stderr=True).print(f"{count} of {found.rows} rows scored {what}", style="yellow")
    if found.problem:
        terminal.console(stderr=True).print(f"the first error: {found.problem}", style="yellow")
