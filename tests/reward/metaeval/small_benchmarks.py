"""Small benchmarks: with given judgments, and as files in the common forms with images of one colour."""

import json
from functools import partial
from pathlib import Path

from PIL import Image
from scipy.stats import kendalltau, pearsonr, spearmanr

from reward import registry
from reward.metaeval.benchmarks import Benchmark, BenchmarkSpec, load_benchmark
from reward.metaeval.benchmarks.items import PAIRS, QUADRUPLES, RATINGS
from reward.metaeval.benchmarks.jsonl import as_item
from tests.toys.picture_scorer import SPEC as PICTURE

CORRELATIONS = {
    "tau-b": kendalltau,
    "tau-c": partial(kendalltau, variant="c"),
    "spearman": spearmanr,
    "pearson": pearsonr,
}
WORDS = ("red", "dog", "runs", "on", "green", "grass", "near", "water", "today", "fast")


def write_rated(folder, count, *, images=10, change=None):
    """`count` captions of growing length, rated by their length with some noise; columns "good" and "bad"."""
    _draw(folder, images)
    rows = []
    for number in range(count):
        words = " ".join(WORDS[: 1 + number % 10])
        rating = 1 + number % 10 // 3
        row = {
            "image": f"{number % images}.png",
            "candidate": f"{words} {number}",
            "references": [f"A dog runs on grass {number % images}."],
            "ratings": [rating, min(4, rating + number % 2), max(1, rating - number % 3 // 2)],
            "good": rating + number % 2 / 10,
            "bad": (number * 7) % 5,
        }
        if change is not None:
            change(row)
        rows.append(row)
    return write_lines(folder / "rated.jsonl", *rows)


def load_rated(folder, count, *, limit=None, **options):
    """Flickr8k-Expert with the captions of `write_rated`."""
    return load_benchmark("flickr8k-expert", write_rated(folder, count, **options), limit=limit)


def write_pairs(folder, count, references=1):
    """Pairs of Pascal-50S in two categories: the longer caption is right, but for every fifth pair."""
    _draw(folder, 4)
    rows = []
    for number in range(count):
        captions = [f"red dog {number}", f"red dog runs on grass {number}"]
        row = {
            "category": ("HC", "MM")[number % 2],
            "image": f"{number % 4}.png",
            "captions": captions if number % 3 else captions[::-1],
            "label": int(bool(number % 3)) if number % 5 else int(not number % 3),
            "references": [f"A red dog runs on grass {n}." for n in range(references)],
            "given": [0.2, 0.4],
        }
        rows.append(row)
    return write_lines(folder / "pairs.jsonl", *rows)


def use_metrics(patch, *specs):
    """Makes the registry know the metrics length, unigram and picture, and those given."""
    known = {name: registry.metric_spec(name) for name in ("length", "unigram")}
    known |= {spec.name: spec for spec in (PICTURE, *specs)}
    patch.setattr(registry, "installed_specs", lambda: known)


def _draw(folder, images):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(images):
        Image.new("RGB", (4, 4), (40 * number, 5, 9)).save(folder / f"{number}.png")


def write_lines(path, *rows):
    """Rows as JSON lines; a text is a line as it is."""
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def write_files(folder, files):
    """Files by name: bytes and texts as they are, rows of a .jsonl file, anything else as JSON; gives the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif name.endswith(".jsonl"):
            write_lines(path, *content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def make_benchmark(entries, form, statistic, **facts):
    """Of entries of the common form."""
    spec = BenchmarkSpec("made", "Made", form, statistic=statistic, **facts)
    return Benchmark.of(spec, (as_item(entry, form, f"item {n}", Path()) for n, entry in enumerate(entries)))


def rated(ratings, images=None, statistic="tau-c", **facts):
    """Of ratings, one list of raters a caption, or one {aspect: list}."""
    categories = facts.pop("categories", [""] * len(ratings))
    entries = [
        {
            "candidate": f"caption {n}",
            "ratings": given,
            "image_id": images[n] if images else "",
            "category": categories[n],
        }
        for n, given in enumerate(ratings)
    ]
    return make_benchmark(entries, RATINGS, statistic, **facts)


def pairs(labels, categories=None, images=None, **facts):
    """Of labels, 0, 1 or None for a tie."""
    entries = [
        {"captions": ["one", "other"], "label": label, "image_id": images[n] if images else ""}
        | {"category": categories[n] if categories else ""}
        for n, label in enumerate(labels)
    ]
    return make_benchmark(entries, PAIRS, "accuracy", **facts)


def quadruples(count):
    return make_benchmark([{"images": [None, None], "captions": ["a b", "b a"]}] * count, QUADRUPLES, "group")


def correlation(statistic, scores, ratings):
    """A correlation as scipy gives it; NaN where a side is constant."""
    if len(set(scores)) < 2 or len(set(ratings)) < 2:
        return float("nan")
    value = CORRELATIONS[statistic](scores, ratings).statistic
    return value
