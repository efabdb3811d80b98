"""Speed of the metrics beside the packages that users would take instead: same captions, same weights, one thread.

Both sides take turns, and the fastest run of each counts. A package that is not installed is left out, and named:
`pip install bert-score torchmetrics "capreward[ngrams]"`. Networks are loaded, METEOR's programs started before.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from reward import CaptionSample, load_scorer
from reward.metrics.base import fitted
from reward.scenes import make_dataset
from reward.sentences import split_sentences
from tests.benchmarks import peers
from tests.benchmarks.measuring import make_table, measure_seconds, write_csv

COLUMNS = ("metric", "beside", "captions", "ms, theirs", "ms, ours", "ratio", "ratio without their splitting", "differ")


class Pair(NamedTuple):
    """The two ways to score some captions.

    Args:
        metric, beside: of what, beside what.
        samples: the captions.
        theirs: gives scores (N,), which are ours times `scale`.
        ours: gives scores (N,).
        split: what they do before: it splits texts into words.
    """

    metric: str
    beside: str
    samples: Sequence[CaptionSample]
    theirs: Callable[[], Any]
    ours: Callable[[], Any]
    scale: float = 1.0
    split: Callable[[], None] | None = None


def short_captions(
    images: int, group: int, *, size: tuple[int, int] = (224, 224), seed: int = 1
) -> list[CaptionSample]:
    """`group` captions of one or two sentences for each scene, with five references that its captions share."""
    rng, samples = random.Random(seed), []
    for row in make_dataset(images, seed=seed):
        known, own = (
            [sentence for text in texts for sentence, _ in split_sentences(text)]
            for texts in (row["refs"], [row["cand"]])
        )
        references = tuple(" ".join(rng.sample(known, min(len(known), rng.randint(1, 2)))) for _ in range(5))
        image = row["image"].convert("RGB").resize(size, Image.Resampling.BICUBIC)
        for _ in range(group):
            pool = known + own
            samples.append(CaptionSample(" ".join(rng.sample(pool, rng.randint(1, 2))), image, references))
    return samples


def captions_of_their_own(count: int, *, seed: int = 2) -> list[CaptionSample]:
    """Captions with three references each, which no other caption has: what a data set without groups holds."""
    rng, captions = random.Random(seed), list(make_dataset(max(40, count // 8), seed=seed))
    known = [sentence for row in captions for text in row["refs"] for sentence, _ in split_sentences(text)]

    def text() -> str:
        return " ".join(rng.sample(known, rng.randint(1, 2)))

    return [CaptionSample(text(), None, tuple(text() for _ in range(3))) for _ in range(count)]


def missing(module: str) -> bool:
    return importlib.util.find_spec(module) is None


def pairs(options: argparse.Namespace, folder: Path) -> Iterator[Pair | str]:
    """The comparisons, and the names of what is left out."""
    if missing("pycocoevalcap") or shutil.which("java") is None:
        yield "pycocoevalcap"
    else:
        yield from _ngrams(short_captions(options.texts, 4), "")
        yield from _ngrams(captions_of_their_own(options.own), ", own references")
    if missing("bert_score"):
        yield "bert-score"
    else:
        shared, alone = short_captions(options.images, 4), captions_of_their_own(options.own)
        texts = [text for sample in (*shared, *alone) for text in (sample.candidate, *sample.references)]
        for width, layers in ((256, 4), (768, 9)):
            model = peers.bert_folder(folder / f"bert{width}", texts, width=width, layers=layers)
            own = load_scorer("bertscore", model, layer=layers, device="cpu")
            for samples, setting in ((shared, ""), (alone, ", own references")):
                theirs = peers.bert_score(model, samples, layer=layers)
                name = f"bertscore ({width} x {layers}){setting}"
                yield Pair(name, "bert-score", samples, theirs, _scores(own, samples))
    if missing("torchmetrics"):
        yield "torchmetrics"
    else:
        own = load_scorer("clipscore", peers.clip_folder(folder), device="cpu")
        for group in (1, 8):
            samples = short_captions(max(2, options.images // group), group)
            told = [CaptionSample("A photo depicts " + sample.candidate, sample.image) for sample in samples]
            theirs = peers.torchmetrics_clip(folder, told, batch=options.batch)
            name = f"clipscore (G {group})"
            yield Pair(name, "torchmetrics", samples, theirs, _scores(own, samples), scale=100 / own.weight)
    own = load_scorer("vela", device="cpu")
    for group in (1, 8):
        samples = short_captions(max(2, options.images // group), group, size=(96, 96))
        theirs = peers.padded_vela(own, samples, batch=options.batch)
        yield Pair(f"vela (G {group})", "padded batches (COMET's way)", samples, theirs, _scores(own, samples))


def _scores(scorer: Any, samples: Sequence[CaptionSample]) -> Callable[[], np.ndarray]:
    return lambda: scorer.score(samples).scores[:, 0]


def _ngrams(samples: Sequence[CaptionSample], setting: str) -> Iterator[Pair]:
    from reward.metrics.ngrams import java

    split, ways = peers.ngrams(samples)

    def score(metric: str) -> np.ndarray:
        java._kept.clear()  # else each text would be split once, and never again
        return fitted(load_scorer(metric), [sample.references for sample in samples]).score(samples).scores[:, 0]

    for metric, theirs in ways.items():
        yield Pair(metric + setting, "pycocoevalcap", samples, theirs, lambda metric=metric: score(metric), split=split)


def compare(pair: Pair, repeats: int) -> dict[str, str]:
    """A row of the table."""
    theirs, ours = (np.asarray(way(), dtype=np.float64) for way in (pair.theirs, pair.ours))
    theirs = theirs.reshape(len(pair.samples), -1)[:, 0]
    differ = np.abs(theirs / pair.scale - ours)[ours > 0].max()  # those of torchmetrics may be below 0
    split: dict[str, Callable[[], Any]] = {} if pair.split is None else {"split": pair.split}
    found = measure_seconds({**split, "theirs": pair.theirs, "ours": pair.ours}, repeats, "cpu")
    best = {way: 1000 * min(seconds) / len(pair.samples) for way, seconds in found.items()}
    whole = best["theirs"] + best.get("split", 0.0)
    alone = f"{best['theirs'] / best['ours']:.2f}" if split else ""
    figures = (len(pair.samples), f"{whole:.2f}", f"{best['ours']:.2f}", f"{whole / best['ours']:.2f}", alone)
    return dict(zip(COLUMNS, (pair.metric, pair.beside, *map(str, figures), f"{differ:.0e}"), strict=True))


def main() -> None:
    """Prints a row for each comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each way; the fastest counts")
    parser.add_argument("--texts", type=int, default=500, help="images of the n-gram metrics, four captions each")
    parser.add_argument("--images", type=int, default=32, help="images of the networks, or captions / G")
    parser.add_argument("--own", type=int, default=300, help="captions with three references of their own")
    parser.add_argument("--batch", type=int, default=32, help="captions of a batch of theirs that has no default")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = make_table(f"Milliseconds a caption, one thread; best of {options.repeats} runs in turns", COLUMNS)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for pair in pairs(options, Path(name)):
            if isinstance(pair, str):
                print(f"left out, because it is not installed: {pair}", flush=True)
                continue
            rows.append(compare(pair, options.repeats))
            print(*rows[-1].values(), sep=" | ", flush=True)
            table.add_row(*rows[-1].values())
    Console(width=130).print(table)
    if options.csv:
        write_csv(options.csv, table)


if __name__ == "__main__":
    main()
