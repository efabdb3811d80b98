"""What a monitor says of its checks: figures, warnings with captions, and a table with pictures."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from reward.metaeval.audit.diversity import distinct, repetition, share_a_sentence
from reward.metaeval.audit.parting import Parting

__all__ = ["figures_of", "matrix", "show_table", "warning_of"]

_TABLE_ROWS = 16
_EXAMPLES = 3  # captions of a warning


def matrix(history: Sequence[Mapping[str, Any]], column: str, name: str | None = None) -> np.ndarray:
    """A number of each image at each check, (T, N); NaN for none."""
    if column == "shared_sentence":
        captions = [[row["caption"] for row in check["rows"]] for check in history]
        return np.array([share_a_sentence(each) for each in captions], dtype=float)

    def cell(row: Mapping[str, Any]) -> float:
        if column == "repetition":
            return repetition(row["caption"])
        value = row[column] if name is None else row[column][name]
        return np.nan if value is None else value

    return np.array([[cell(row) for row in check["rows"]] for check in history])


def figures_of(rows: Sequence[Mapping[str, Any]], rewards: Iterable[str], start: str | None) -> dict[str, float | None]:
    """Means over the images of a check; None where no image has a value."""
    check = [{"rows": rows}]
    figures = {"reward": _mean(matrix(check, "reward"))}
    figures |= {f"rewards/{name}": _mean(matrix(check, "rewards", name)) for name in rewards}
    figures |= {f"measures/{name}": _mean(matrix(check, "measures", name)) for name in rows[0]["measures"]}
    captions, tokens = [row["caption"] for row in rows], sum(row["tokens"] for row in rows)
    figures |= {
        "length": tokens / len(rows),
        "truncated": _mean(matrix(check, "truncated")),
        "repetition": _mean(matrix(check, "repetition")),
        "shared_sentence": _mean(matrix(check, "shared_sentence")),
        "distinct_1": distinct(captions, n=1),
        "distinct_2": distinct(captions, n=2),
        "entropy": sum(row["entropy"] for row in rows) / max(1, tokens),
    }
    if start is not None:
        figures["kl"] = sum(row["kl"] for row in rows) / max(1, tokens)
    return figures


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def warning_of(
    kind: str,
    history: Sequence[Mapping[str, Any]],
    verdict: Parting,
    rewards: Sequence[str],
    second: str,
) -> str:
    """The text of a warning, with captions before and now."""
    now, step = history[-1], history[-1]["step"]
    if kind in ("parted", "fallen"):
        before, optimised = history[verdict.best], f"the optimised reward ({', '.join(rewards)})"
        what = {
            "parted": f"{optimised} and {second} have parted",
            "fallen": f"{second} and {optimised} have fallen: the training is unstable (try a lower learning rate)",
        }[kind]
        head = (
            f"step {step}: {what}. Since step {before['step']}, where {second} was best, it fell by {verdict.fall:.3f} "
            f"({verdict.fall_z:.1f} standard errors over {verdict.images} images), and the reward changed by "
            f"{verdict.rise:+.3f}. Captions that {'part' if kind == 'parted' else 'fall'} most:"
        )
        values = [-matrix([before, now], "measures", second)]
        if kind == "parted":
            values.append(matrix([before, now], "reward"))
    else:
        before = history[0]
        what = {
            "truncated": "share of captions without an end token",
            "repetition": "share of repeated 3-grams",
            "shared_sentence": "share of captions with one and the same sentence",
        }[kind]
        values = [matrix([before, now], kind)]
        old, new = values[0].mean(axis=1)
        head = f"step {step}: the {what} is {new:.2f}, and was {old:.2f} at step {before['step']}. Captions:"
    changes = sum(_standardised(value[1] - value[0]) for value in values)
    chosen = np.argsort(-np.nan_to_num(changes, nan=-np.inf), kind="stable")[:_EXAMPLES]
    lines = [line for index in chosen for line in _example(int(index), before, now, second)]
    return "\n".join([head, *lines])


def _standardised(differences: np.ndarray) -> np.ndarray:
    deviation = np.nanstd(differences)
    return differences / deviation if deviation else differences


def _example(index: int, before: Mapping[str, Any], now: Mapping[str, Any], second: str) -> list[str]:
    lines = [f"  image {index}"]
    for check in (before, now):
        row = check["rows"][index]
        numbers = ", ".join(
            f"{name} {'none' if value is None else format(value, '.3f')}"
            for name, value in (("reward", row["reward"]), (second, row["measures"][second]))
        )
        lines.append(f"    step {check['step']} ({numbers}): {row['caption'].strip()}")
    return lines


def show_table(report_to: Sequence[str], rows: Any, history: Sequence[Mapping[str, Any]], second: str) -> None:
    """Sends pictures with captions at the start and now to wandb or trackio, where the trainer reports to them."""
    backends = [name for name in ("wandb", "trackio") if name in report_to]
    if not backends:
        return
    import pandas as pd

    first, now = history[0]["rows"], history[-1]["rows"]
    changes = matrix([history[0], history[-1]], "measures", second)
    chosen = np.argsort(np.nan_to_num(changes[1] - changes[0]), kind="stable")[:_TABLE_ROWS].tolist()
    for name in backends:
        try:
            backend = importlib.import_module(name)
        except ImportError:
            continue
        if name == "wandb" and backend.run is None:
            continue
        pictures = [rows[index] for index in chosen]
        table = {
            "step": [history[-1]["step"]] * len(chosen),
            "image": [backend.Image((row.get("images") or [row["image"]])[0]) for row in pictures],
            "at the start": [first[index]["caption"] for index in chosen],
            "now": [now[index]["caption"] for index in chosen],
            "reward": [now[index]["reward"] for index in chosen],
            second: [now[index]["measures"][second] for index in chosen],
        }
        backend.log({"monitor/captions": backend.Table(dataframe=pd.DataFrame(table))})
