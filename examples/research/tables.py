"""The tables of the results pages: which commands measure each, which CSV file keeps it, and what its cells show.

In a command, {500} is a size that `--limit` makes smaller, {100-500} one that it leaves at 100 or more. {out} is the
table's own folder, {runs} that of all tables, {docs} that of the pages; another name in braces is a path to be given
with `--given`. A cell is a format over the columns of the CSV file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from examples.research import stored
from examples.research.stored import Row

__all__ = ["TABLES", "Table"]


@dataclass(frozen=True)
class Table:
    """A table of a page, which stands there between `<!-- table: NAME -->` and `<!-- end -->`.

    Args:
        csv: file in docs/results.
        cells: {heading: format}; the first names the row. A bracket without figures is left out. {} if the figures are
            only drawn or quoted.
        commands: in order.
        cost: about how long the commands take on two cores.
        store: makes the rows of the CSV file of what the commands left in a folder; by default they left that file.
        keep: which rows the page shows.
        group: rows with the same texts in these columns become one, whose cells hold the figures of all.
    """

    csv: str
    cells: Mapping[str, str]
    commands: tuple[str, ...]
    cost: str
    store: Callable[[Path], list[Row]] | None = None
    keep: Callable[[Row], bool] = lambda row: True
    group: tuple[str, ...] = ()


def _loses(row: Row) -> bool:
    return any(float(row[f"{name}, wins %"] or 0) > 0 for name in ("VELA", "BEiTScore"))


_QUALITY = ("f1", "flaws", "f1_sampled", "flaws_sampled")
_WINS = {name: f"{{{name}, wins %:.3g}}" for name in ("VELA", "BEiTScore", "FLEUR", "CLIPScore", "CIDEr")}
_MEAN = "{mean:.3f} [{mean_low:.3f}, {mean_high:.3f}]"
_WORST = {name: f"{{{name}:.3f}} ({{{name}_worst:.3f}})" for name in _QUALITY}

_GRPO = "python -m examples.research.grpo_captioner --samples 2 --scenes {200} --without-control "
_SMALL = "--scene-seed 9191 --steps {80} --lr 3e-4 --seeds 91 92 93 --reward "
_RUNS = {  # folder: (reward, captions a step, options)
    "vela_64": ("VELA", 64, _SMALL + "vela"),
    "vela_64_long": ("VELA", 64, "--scene-seed 9191 --steps {300} --lr 3e-4 --seeds 94 95 96 --reward vela"),
    "vela_256": ("VELA", 256, _SMALL + "vela --prompts 32"),
    "beitscore_64": ("BEiTScore", 64, _SMALL + "beitscore"),
    "both_64": (".7 VELA + .3 BEiTScore", 64, _SMALL + "both"),
}
_DOMAIN = (  # what the page shows of it
    *("as it is", "resized, then JPEG 70 to 95"),
    *("as in training, attacked", "captioner, temperature 1.0", "captions of ours"),
)
# Ends at once if the judge is there.
_JUDGE = "python -m examples.research.judge_scenes.train --steps {100-4000} --output {runs}/judge"
_SIZES = "python -m tests.benchmarks.bench_sizes --csv {out}"

TABLES = {
    "metrics": Table(
        csv="bench_scenes.csv",
        cells={
            "": "`{metric}`",
            **{name: f"{{{name}:.1f}}" for name in stored.ASPECTS[:3]},
            "mean": "{mean:.1f} [{mean_low:.1f}, {mean_high:.1f}]",
        },
        commands=(
            _JUDGE,
            'capreward bench --benchmark scenes --part "seed 2026" --limit {500} --resamples 2000 --metric ALL '
            "--metric clipscore_avg --metric fleur={runs}/judge/fleur --metric harmoniceval={runs}/judge/harmoniceval "
            "--cache {out}/scores --output {out}",
        ),
        cost="1 h",
        store=stored.bench,
        keep=lambda row: row["metric"] not in ("bleu1", "bleu2", "bleu3", "clipscore_avg"),
    ),
    "pairs": Table(
        csv="pairs.csv",
        cells={"": "{scorer}", "short, long": "{accuracy:.3f} [{low:.3f}, {high:.3f}]"},
        commands=("python -m examples.research.evaluate_beitscore --n {100} --seed 8211 --output {out}",),
        cost="2 min",
        keep=lambda row: row["kind"] == "mean" and "another" not in row["scorer"],
        group=("scorer",),
    ),
    "attacks": Table(
        csv="audit.csv",
        cells={"attack": "{attack}"} | _WINS,
        commands=(
            _JUDGE,
            "capreward audit vela beitscore clipscore cider fleur={runs}/judge/fleur --images {100} --seed 8303 "
            "--output {out}/audit",
        ),
        cost="5 min, 1 h if metrics was not measured before",
        store=stored.attacks,
        keep=_loses,
    ),
    "further_attacks": Table(
        csv="further_attacks.csv",
        cells={
            "attack": "{attack}",
            **{
                name: f"{{{name}, wins %:.3g}} [{{{name}, low:.3g}}, {{{name}, high:.3g}}]"
                for name in ("VELA", "BEiTScore")
            },
        },
        commands=(
            "python -m examples.research.further_attacks vela beitscore --scenes {100} --seed 8303 "
            "--output {out}/audit.json",
        ),
        cost="1 min",
        store=stored.attacks,
        keep=_loses,
    ),
    "best_of_n": Table(
        csv="best_of_n.csv",
        cells={"": "{captions}", "F1 of facts": "{f1:.3f} [{f1_low:.3f}, {f1_high:.3f}]"}
        | {"flaws of language": "{flaws:.2f}", "words": "{words:.0f}"},
        commands=("python examples/best_of_n.py --reward both --scenes {200} --seed 2028 --output {out}",),
        cost="2 min",
        store=stored.best_of_n,
    ),
    "decoding": Table(
        csv="decoding_curve.csv",
        cells={
            "strategy": "{line}",
            "setting": "{setting}",
            "tokens": "{tokens:.0f}",
            "F1": "{f1:.3f}",
            "F1 - best of n": "{f1_mark}{f1_difference:+.3f}{f1_mark}",
        },
        commands=("python -m examples.research.decoding_curve --scenes {200} --output {out}",),
        cost="10 min",
        store=stored.decoding,
        group=("line",),
    ),
    "grpo": Table(
        csv="grpo_table.csv",
        cells={"reward": "{reward}", "captions x steps": "{captions} x {steps}"}
        | {"F1": _WORST["f1"], "flaws": _WORST["flaws"]}
        | {"F1, sampled": _WORST["f1_sampled"], "flaws, sampled": _WORST["flaws_sampled"]},
        commands=(
            *(f"{_GRPO}{options} --output {{out}}/{folder}" for folder, (*_, options) in _RUNS.items()),
            "python -m examples.research.draw_pictures --run {out}/vela_64 --results {docs}/results "
            "--output {docs}/images",
        ),
        cost="2 h",
        store=partial(stored.grpo, names={folder: (name, size) for folder, (name, size, _) in _RUNS.items()}),
    ),
    "parting": Table(
        csv="parting.csv",
        cells={},
        commands=(
            _GRPO + "--reward beitscore --beitscore {first}/beitscore --captioner {first}/captioner --steps {36} "
            "--lr 2e-4 --seeds 38 --monitor vela --monitor-every 2 --monitor-scenes {10-800} --scene-seed 6161 "
            "--output {out}",
        ),
        cost="20 min",
        store=stored.parting,
    ),
    "domain": Table(
        csv="domain.csv",
        cells={"": "{of}", "what": "{what}", "number": "{n}", "out of domain": "{flagged}"},
        commands=(
            "python -m examples.research.embedded.domain --scenes {100-4000} --photos {photos} --csv {out}/domain.csv",
        ),
        cost="15 min",
        keep=lambda row: row["form"] in _DOMAIN,
        group=("what", "of"),
    ),
    "photos_memory": Table(
        csv="photos_memory.csv",
        cells={"": "{policy}", "tokens a caption": "{tokens a caption}"}
        | {name: f"{{{name}}}" for name in ("weights", "LoRA, AdamW", "reward", "training", "writing", "at most")},
        commands=("python -m tests.benchmarks.photo_memory --csv {out}/photos_memory.csv",),
        cost="5 min",
        keep=lambda row: row["at once"] == "8",
    ),
    "peers": Table(
        csv="peers.csv",
        cells={"beside": "{beside}", "metric": "{metric}", "times as fast": "{ratio}"},
        commands=("python -m tests.benchmarks.bench_peers --csv {out}/peers.csv",),
        cost="5 min",
        group=("beside",),
    ),
    "offline": Table(
        csv="offline.csv",
        cells={
            "": "{metric}",
            "of the bare rate": "{share, %} %",
            "first rows": "{start, s} s",
            "MiB after a tenth, nine tenths, while writing": "{MiB at 10 %}, {MiB at 90 %}, {MiB while writing}",
            "decode, resize, %": "{decode}, {resize}",
            "network, %": "{network}",
            "tokens, read, write, %": "{tokens and grouping}, {read and write}",
        },
        commands=(
            "python -m tests.benchmarks.bench_offline --rows {1000-100000} --csv {out}/rates.csv",
            "python -m tests.benchmarks.bench_stages --images 100 --csv {out}/stages.csv",
        ),
        cost="40 min",
        store=stored.offline,
    ),
    "sizes_scoring": Table(
        csv="sizes_scoring.csv",
        cells={"metric": "{metric}"}
        | {name: f"{{{name}}}" for name in ("G", "TFLOP shared", "TFLOP one by one")}
        | {"GiB peak": "{GiB peak}"},
        commands=(_SIZES,),
        cost="5 min",
        group=("metric",),
    ),
    "sizes_parts": Table(
        csv="sizes_parts.csv",
        cells={},
        commands=(_SIZES,),
        cost="5 min",
    ),
    "sizes_share": Table(
        csv="sizes_share.csv",
        cells={name: f"{{{name}}}" for name in ("metric", "trained", "TFLOP policy", "TFLOP reward", "share, %")},
        commands=(_SIZES,),
        cost="5 min",
        keep=lambda row: row["metric"] != "beitscore",
        group=("metric",),
    ),
    "sizes_training": Table(
        csv="sizes_training.csv",
        cells={name: f"{{{name}}}" for name in ("metric", "tokens", "gradient checkpointing", "TFLOP", "GiB peak")},
        commands=(_SIZES,),
        cost="5 min",
    ),
}
