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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from reward import CaptionSample, load_scorer
from reward.data.sentences import split_sentences
from reward.metrics.base import fitted
from reward.scenes import make_dataset
from tests.benchmarks import peers, peers_of_models
from tests.benchmarks.measuring import measure_seconds, show

COLUMNS = ("metric", "beside", "captions", "ms, theirs", "ms, ours", "ratio", "ratio without their splitting", "differ")
TEXTS = 500  # images of the n-gram metrics, four captions each
IMAGES = 32  # of the networks, or captions / G
RANDOM = 3000  # captions of random words with five references of their own
OWN = 300  # captions with three references of their own


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


def sentences(texts):
    return [sentence for text in texts for sentence, _ in split_sentences(text)]


def short_captions(images, group, *, size=224):
    """`group` captions of one or two sentences for each scene, with five references that its captions share."""
    rng, samples = random.Random(1), []
    for row in make_dataset(images, seed=1):
        known = sentences(row["refs"])
        references = [" ".join(rng.sample(known, min(len(known), rng.randint(1, 2)))) for _ in range(5)]
        image = row["image"].convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
        for _ in range(group):
            caption = " ".join(rng.sample(known + sentences([row["cand"]]), rng.randint(1, 2)))
            samples.append(CaptionSample(caption, image, references))
    return samples


def captions_of_their_own(count):
    """Captions with three references each, which no other caption has: what a data set without groups holds."""
    rng = random.Random(2)
    known = sentences([text for row in make_dataset(max(40, count // 8), seed=2) for text in row["refs"]])
    texts = [[" ".join(rng.sample(known, rng.randint(1, 2))) for _ in range(4)] for _ in range(count)]
    return [CaptionSample(caption, None, references) for caption, *references in texts]


def captions_of_random_words(count):
    """Captions with five references each, all of random words: few n-grams are shared, and nothing is read twice."""
    rng = random.Random(3)
    vocabulary = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(400)]
    samples = []
    for _ in range(count):
        references = [" ".join(rng.choices(vocabulary, k=rng.randint(8, 14))) + "." for _ in range(5)]
        words = [word if rng.random() < 0.6 else rng.choice(vocabulary) for word in references[0].strip(".").split()]
        samples.append(CaptionSample(" ".join(words) + ".", None, references))
    return samples


def captions_of_one_length(images, group):
    """`group` captions for five references that they share, all of as many words: no pass has padding to save."""
    rng = random.Random(4)
    vocabulary = ["star", "heart", "ring", "box", "red", "blue", "green", "big", "small", "one", "two", "three"]

    def text():
        return " ".join(rng.choices(vocabulary, k=12))

    samples = []
    for _ in range(images):
        references = [text() for _ in range(5)]
        samples += [CaptionSample(text(), None, references) for _ in range(group)]
    return samples


def missing(module):
    return importlib.util.find_spec(module) is None


def pairs(folder):
    """The comparisons, and the names of what is left out."""
    if missing("pycocoevalcap") or shutil.which("java") is None:
        yield "pycocoevalcap"
    else:
        yield from ngrams(short_captions(TEXTS, 4), "")
        yield from ngrams(captions_of_their_own(OWN), ", own references")
        yield from ngrams(captions_of_random_words(RANDOM), ", random words")
    if missing("bert_score"):
        yield "bert-score"
    else:
        yield from bertscores(folder)
    if missing("torchmetrics"):
        yield "torchmetrics"
    else:
        own = load_scorer("clipscore", peers.clip_folder(folder), device="cpu")
        for group in (1, 8):
            samples = short_captions(IMAGES // group, group)
            told = [CaptionSample("A photo depicts " + sample.candidate, sample.image) for sample in samples]
            name, theirs = f"clipscore (G {group})", peers.torchmetrics_clip(folder, told)
            yield Pair(name, "torchmetrics", samples, theirs, scores(own, samples), scale=100 / own.weight)
    own = load_scorer("vela", device="cpu")
    for group in (1, 8):
        samples = short_captions(IMAGES // group, group, size=96)
        name, theirs = f"vela (G {group})", peers.padded_vela(own, samples)
        yield Pair(name, "padded batches (COMET's way)", samples, theirs, scores(own, samples))
    yield from models(folder)


def models(folder):
    """Metrics around models of any kind."""
    if missing("sentence_transformers"):
        yield "sentence-transformers"
    else:
        model = peers_of_models.embedding_model(folder)
        for group in (1, 8):
            samples = short_captions(IMAGES // group, group)
            theirs, ours = peers_of_models.embedscore(model, samples)
            yield Pair(f"embedscore (G {group})", "sentence-transformers", samples, theirs, ours)
    scorer = peers_of_models.reward_model()
    for group in (1, 8):
        samples = short_captions(IMAGES // group, group, size=32)
        theirs, ours = peers_of_models.vlmreward(scorer, samples)
        yield Pair(f"vlmreward (G {group})", "a loop over the model", samples, theirs, ours)


def scores(scorer, samples):
    return lambda: scorer.score(samples).scores[:, 0]


def ngrams(samples, setting):
    from reward.metrics.ngrams import java

    split, ways = peers.ngrams(samples)

    def score(metric):
        java._words_of_part.clear()  # else each text would be split once, and never again
        return fitted(load_scorer(metric), [sample.references for sample in samples]).score(samples).scores[:, 0]

    for metric, theirs in ways.items():
        yield Pair(metric + setting, "pycocoevalcap", samples, theirs, lambda metric=metric: score(metric), split=split)


def bertscores(folder):
    settings = {
        "": short_captions(IMAGES, 4),
        ", own references": captions_of_their_own(OWN),
        ", one length": captions_of_one_length(IMAGES, 4),
    }
    texts = [
        text for samples in settings.values() for sample in samples for text in (sample.candidate, *sample.references)
    ]
    for width, layers in ((256, 4), (768, 9)):
        model = peers.bert_folder(folder / f"bert{width}", texts, width=width, layers=layers)
        own = load_scorer("bertscore", model, layer=layers, device="cpu")
        for setting, samples in settings.items():
            name, theirs = f"bertscore ({width} x {layers}){setting}", peers.bert_score(model, samples, layer=layers)
            yield Pair(name, "bert-score", samples, theirs, scores(own, samples))


def compare(pair, repeats):
    """A row of the table."""
    theirs, ours = (np.asarray(way(), dtype=np.float64) for way in (pair.theirs, pair.ours))
    theirs = theirs.reshape(len(pair.samples), -1)[:, 0]
    differ = np.abs(theirs / pair.scale - ours)[ours != 0].max()  # where ours is 0, that of torchmetrics may be below
    split = {} if pair.split is None else {"split": pair.split}
    found = measure_seconds({**split, "theirs": pair.theirs, "ours": pair.ours}, repeats, "cpu")
    best = {way: 1000 * min(seconds) / len(pair.samples) for way, seconds in found.items()}
    whole = best["theirs"] + best.get("split", 0.0)
    alone = f"{best['theirs'] / best['ours']:.2f}" if split else ""
    times = [f"{whole:.2f}", f"{best['ours']:.2f}", f"{whole / best['ours']:.2f}", alone]
    return [pair.metric, pair.beside, str(len(pair.samples)), *times, f"{differ:.0e}"]


def main():
    """Prints a row for each comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each way; the fastest counts")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    title = f"Milliseconds a caption, one thread; best of {options.repeats} runs in turns"
    with tempfile.TemporaryDirectory() as name:
        found = pairs(Path(name))
        rows = (["not installed", each] if isinstance(each, str) else compare(each, options.repeats) for each in found)
        show(title, COLUMNS, rows, options.csv)


if __name__ == "__main__":
    main()
