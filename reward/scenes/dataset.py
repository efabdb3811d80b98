"""The synthetic world as a `datasets.Dataset` with LongCap-Arena's columns."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from reward.scenes.raters import ASPECTS
from reward.scenes.render import render
from reward.scenes.samples import make_rated_sample

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["make_dataset"]


def make_dataset(n: int, seed: int, *, aspect: str | None = None, references: int | None = None) -> Dataset:
    """Makes `n` rated captions of `n` random scenes; the same arguments always give the same rows.

    Args:
        n: number of rows, at least 1.
        seed: any whole number; rows of different seeds are different scenes.
        aspect: `"desc"`, `"rel"` or `"flu"`: what the column `score` holds; None puts the mean of the three there.
        references: number of references a row; None gives one to three.

    Returns:
        A data set with the columns of LongCap-Arena, file_name (str), image (PIL), refs (list of str), cand (str) and
        score (float in [0, 1]); and beside them desc, rel, flu (the three scores), ratings (JSON: per aspect the
        three raters' whole ratings 1..5), truth (JSON: per aspect the rating without noise), errors and damages (lists
        of str), and scene (JSON, for `Oracle.score`).

    Raises:
        ValueError: `n` below 1 or unknown aspect.

    Example:
        >>> rows = make_dataset(2, seed=0)
        >>> sorted(set(rows.column_names) & {"cand", "file_name", "image", "refs", "score"})
        ['cand', 'file_name', 'image', 'refs', 'score']
    """
    import json

    from datasets import Dataset, Features, Image, List, Value

    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    if aspect is not None and aspect not in ASPECTS:
        raise ValueError(f"aspect must be one of {', '.join(ASPECTS)} or None, got {aspect!r}")
    text, number, texts = Value("string"), Value("float64"), List(Value("string"))
    features = Features(
        {"file_name": text, "image": Image(), "refs": texts, "cand": text, "score": number}
        | dict.fromkeys(ASPECTS, number)
        | {"ratings": text, "truth": text, "errors": texts, "damages": texts, "scene": text}
    )
    columns: dict[str, list[Any]] = {name: [] for name in features}
    for index in range(n):
        # One generator a row: row k is the same whatever n is.
        sample = make_rated_sample(random.Random(f"capreward scenes {seed} {index}"), references=references)
        ratings = sample.candidate.ratings
        scores = {name: ratings.score(name) for name in ASPECTS}
        row = {
            "file_name": f"scene_{seed}_{index:06d}.png",
            "image": render(sample.scene),
            "refs": list(sample.references),
            "cand": sample.candidate.caption.text,
            "score": scores[aspect] if aspect else sum(scores.values()) / len(scores),
            **scores,
            "ratings": json.dumps(ratings.raters),
            "truth": json.dumps(ratings.true),
            "errors": list(sample.candidate.errors),
            "damages": list(sample.candidate.damages),
            "scene": sample.scene.to_json(),
        }
        for name, value in row.items():
            columns[name].append(value)
    return Dataset.from_dict(columns, features=features)
