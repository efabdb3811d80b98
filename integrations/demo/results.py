"""The demo's results: as plain data for the report and figures.json, and as tables for the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from integrations.demo.agreement import CEILING, AgreementPart
from integrations.demo.choosing import ChoicePart
from integrations.demo.grpo import GrpoPart
from reward.metaeval import Interval
from reward.metaeval.agreement import RATER
from reward.metaeval.bootstrap import MEAN
from reward.scenes import ASPECTS

__all__ = [
    "QUICK",
    "SEED",
    "OfflinePart",
    "Results",
    "Sizes",
    "agreement_table",
    "choice_table",
    "grpo_table",
    "offline_table",
]

_MEASURES = {"f1": "oracle F1", "recall": "recall", "precision": "precision", "words": "words"}
SEED = 7  # of all held-out scenes; no model was trained on scenes of this seed


@dataclass(frozen=True)
class Sizes:
    """How much of everything. The defaults take under five minutes on two cores.

    Args:
        samples: rated captions in the comparison of metrics.
        scenes: held-out scenes of best-of-n and GRPO.
        n: candidates of best-of-n.
        steps, prompts, generations: GRPO steps, scenes per step, captions per scene.
        learning_rate: of GRPO.
        samples_judged: sampled captions a held-out scene before and after GRPO.
        max_new_tokens: longest caption.
        resamples: of the bootstrap.
    """

    samples: int = 300
    scenes: int = 48
    n: int = 16
    steps: int = 45
    prompts: int = 8
    generations: int = 8
    learning_rate: float = 3e-4
    samples_judged: int = 2
    max_new_tokens: int = 90
    resamples: int = 1000


QUICK = Sizes(
    samples=24, scenes=4, n=4, steps=2, prompts=2, generations=2, samples_judged=1, max_new_tokens=12, resamples=50
)


@dataclass
class OfflinePart:
    """A scored file.

    Args:
        captions, scores: names of input and output in the report's folder.
        command: what does the same from a shell.
        summary: counts, rate and distributions, see `reward.scoring.ScoringSummary`.
        rows: the first rows of the output.
    """

    captions: str
    scores: str
    command: str
    summary: dict[str, Any]
    rows: list[dict[str, Any]]


@dataclass
class Results:
    """What has been found so far; a part that has not run is None.

    Args:
        version: of this package.
        vela, beitscore, captioner: the checkpoints used.
        sizes: see `Sizes`.
        agreement, choice, grpo, offline: the parts.
        seconds: {part: time it took}.
        stopped: the part in which the user stopped the demo, if so.
    """

    version: str
    vela: str
    beitscore: str
    captioner: str
    sizes: Sizes
    agreement: AgreementPart | None = None
    choice: ChoicePart | None = None
    grpo: GrpoPart | None = None
    offline: OfflinePart | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    stopped: str | None = None

    def to_json(self) -> str:
        """All figures as JSON."""
        plain: dict[str, Any] = asdict(self)
        return json.dumps(plain, indent=1)


def agreement_table(part: AgreementPart) -> Table:
    """Agreement of metrics with ratings, then paired differences of the learned ones from the baselines."""
    table = _table(
        f"Kendall's tau-c with the mean of three simulated raters, {part.samples} held-out scenes", [*ASPECTS, MEAN]
    )
    _add_rows(table, part.agreement, [*ASPECTS, MEAN])
    table.add_row(f"{RATER} (with the other two)", *_cells(part.against_two[RATER], [*ASPECTS, MEAN]))
    table.add_section()
    for name, rows in part.differences.items():
        for other, row in rows.items():
            if other not in part.differences and other != CEILING:
                table.add_row(f"{name} - {other}", *_cells(row, [*ASPECTS, MEAN], signed=True))
        table.add_row(f"{name} - {RATER}", *_cells(part.differences_from_rater[name], [*ASPECTS, MEAN], signed=True))
    return table


def choice_table(part: ChoicePart) -> Table:
    """Greedy against best of n."""
    table = _quality_table(f"Best of {part.n} on {part.scenes} held-out scenes", part)
    if part.gap_closed:
        ways = (
            f"{name} goes {share:.0%} of the way from greedy to the oracle's choice in F1"
            if share >= 0
            else f"{name} chooses worse captions than greedy decoding writes"
            for name, share in part.gap_closed.items()
        )
        table.caption = "; ".join(ways)
        table.caption_justify = "left"
    return table


def grpo_table(part: GrpoPart) -> Table:
    """Before and after GRPO."""
    title = f"GRPO with VelaReward, {part.steps} steps of {part.completions} captions; {part.scenes} other scenes"
    return _quality_table(title, part)


def offline_table(part: OfflinePart) -> Table:
    """Distribution of the scores of the file."""
    summary = part.summary
    title = f"{summary['scored']} captions of a file scored, {summary['rows_per_second']:.1f} a second"
    table = _table(title, ["mean", "std", "min", "max"])
    for name, spread in summary["distributions"].items():
        table.add_row(name, *(f"{spread[key]:.3f}" for key in ("mean", "std", "min", "max")))
    return table


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("", min_width=26)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _quality_table(title: str, part: ChoicePart | GrpoPart) -> Table:
    table = _table(title, list(_MEASURES.values()))
    _add_rows(table, part.means, list(_MEASURES))
    table.add_section()
    for name, row in part.differences.items():
        table.add_row(name, *_cells(row, list(_MEASURES), signed=True))
    return table


def _add_rows(table: Table, rows: Mapping[str, Mapping[str, Interval]], columns: Sequence[str]) -> None:
    for name, row in rows.items():
        table.add_row(name, *_cells(row, columns))


def _cells(row: Mapping[str, Interval], columns: Sequence[str], *, signed: bool = False) -> list[Text]:
    return [_cell(row[column], signed, coloured=signed and column != "words") for column in columns]


def _cell(interval: Interval, signed: bool, coloured: bool) -> Text:
    """The estimate and half the width of its 95 % interval; green or red where a difference's interval excludes 0."""
    text = Text(f"{interval.value:{'+' if signed else ''}.2f} ±{(interval.high - interval.low) / 2:.2f}")
    if coloured and interval.excludes_zero:
        text.stylize("bold green" if interval.low > 0 else "bold red")
    return text
