"""Reads scored samples of images, and shows their best-of-n curves as a table, remarks, JSON and plots."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reward.decoding.curve import Curve, best_of_n_curve, expected_best, kl_bound
from reward.errors import ConfigError, DataError
from reward.metaeval import report as pages
from reward.metaeval.bootstrap import RESAMPLES
from reward.samples import find_column
from reward.scoring.columns import image_identity, listed
from reward.scoring.readers import BadRow, Source, open_source

__all__ = ["BestOfNReport", "best_of_n_report"]


@dataclass(frozen=True, eq=False)
class BestOfNReport:
    """The curves of a file.

    Args:
        curves: {column: curve}; the first column is the one by which captions are chosen.
        samples: {captions of an image: images} of the images that are used, rising.
        left_out: images with too few captions.
    """

    curves: dict[str, Curve]
    samples: dict[int, int]
    left_out: int

    def grid(self) -> pages.Grid:
        """Some n, each with the expected values of the winner, and the bound of the KL divergence."""
        by, *held_out = self.curves
        largest = len(self.curves[by].mean)
        steps = {n for power in range(largest.bit_length()) for n in (2**power, 3 * 2**power) if n <= largest}
        shown = sorted(steps | {largest, *(curve.highest for curve in self.curves.values())})
        rows = [(str(n), *(str(curve.at(n)) for curve in self.curves.values()), f"{kl_bound(n):.3f}") for n in shown]
        title = f"Expected value of the best of n by {by}, {sum(self.samples.values())} images"
        return pages.Grid(title, ("n", f"{by} (chosen by)", *held_out, "KL, at most"), tuple(rows))

    def notes(self) -> Iterator[str]:
        """The answer, and what a reader must know to trust the table."""
        (by, first), *held_out = self.curves.items()
        largest, images = len(first.mean), sum(self.samples.values())
        for name, curve in held_out:
            rise = f"one caption {curve.mean[0]:.3f}, the best of {curve.highest} {curve.at(curve.highest)}"
            if curve.peak is None:
                yield f"{name}: no peak seen up to n = {largest} ({rise}; fall at the end {curve.fall})."
            else:
                yield f"{name} peaks at n = {curve.peak} ({rise}) and has fallen by {curve.fall} at n = {largest}."
        if not held_out:
            yield (
                f"{by} always rises with n, also when captions cheat it: name a column of another metric, or of "
                "people's ratings, with --held-out."
            )
        few, *_, most = [*self.samples, *self.samples]
        yield f"{few} to {most} scored captions an image." if few < most else f"{few} scored captions an image."
        if self.left_out:
            yield f"{self.left_out} images with fewer than {largest} captions are left out."
        elif few < most:
            yield f"n ends at {few}, the fewest captions of an image; --up-to N leaves out images with fewer than N."
        yield (
            "Estimates are unbiased; intervals: 95 %, bootstrap over images. A fall is measured from the peak of one "
            "half of the images on the other half, so that noise is not taken for a peak. KL: log n - (n-1)/n nats, "
            "how far the best of n moves from plain sampling; captions are discrete, so that it is an upper bound."
        )
        if images < pages.FEW_IMAGES:
            yield pages.few_images(images)

    def to_json(self, *, command: str) -> dict[str, Any]:
        """Everything as plain data; lists begin with n = 1."""
        largest = len(next(iter(self.curves.values())).mean)
        columns = {
            name: {
                **{part: getattr(curve, part).tolist() for part in ("mean", "low", "high")},
                **{part: getattr(curve, part) for part in ("highest", "peak", "fall")},
            }
            for name, curve in self.curves.items()
        }
        facts: dict[str, Any] = {"command": command, "versions": pages.versions(), "seed": 0, "resamples": RESAMPLES}
        facts |= {"images": sum(self.samples.values()), "left_out": self.left_out, "samples": self.samples}
        kl = [kl_bound(n) for n in range(1, largest + 1)]
        plain: dict[str, Any] = pages.plain(
            {**facts, "by": next(iter(self.curves)), "kl_bound": kl, "columns": columns}
        )
        return plain

    def write(self, folder: Path, figures: dict[str, Any]) -> Path:
        """Writes best-n.json, best-n.md and best-n.html, with a plot a column; gives the path of the page.

        Raises:
            MissingExtraError: matplotlib is not installed.
            OutputError: a file cannot be written.
        """
        plots = {name: _plot(curve) for name, curve in self.curves.items()}
        section = ("Expected value of the best of n", plots)
        heading = "How large may N be?"
        return pages.write_pages(folder, "best-n", heading, figures, [self.grid()], list(self.notes()), [section])


def best_of_n_report(
    data: str | os.PathLike[str],
    *,
    by: str | None = None,
    held_out: Sequence[str] = (),
    group_column: str | None = None,
    up_to: int | None = None,
) -> BestOfNReport:
    """Curves of the best of n by one column, as several columns see the winner.

    Args:
        data: what `capreward score` writes (a caption a row), or `capreward rerank` (lists of scores); see
            `reward.scoring.readers.open_source`.
        by: column of the scores that choose; None is `reward` or, of lists, `rewards`.
        held_out: columns of other scores, or of people's ratings, of the same captions.
        group_column: what the captions of an image share; None is the image.
        up_to: largest n; images with fewer samples are left out. None is the fewest samples that an image has, so that
            every image counts.

    Raises:
        DataError: a column is missing, a caption has no score, or there are too few samples.
        ConfigError: `up_to` is below 2, or a column is named twice.
    """
    if up_to is not None and up_to < 2:
        raise ConfigError(f"--up-to must be at least 2, got {up_to}")
    source = open_source(data)
    by = by or next((name for name in ("reward", "rewards") if name in source.columns), "reward")
    names = [by, *held_out]
    if len(set(names)) < len(names):
        raise ConfigError(f"--held-out must name other columns than --by {by}, each once, got {', '.join(held_out)}")
    for name in names:
        find_column("score", source.columns, name, option="--by" if name == by else "--held-out")
    role = "image" if group_column is None else "group"
    group = find_column(role, source.columns, group_column, option="--group-column", needed_by="a curve")
    pools = _pools(source, str(group), names)
    sizes = {image: len(pool) for image, pool in pools.items()}
    largest = min(sizes.values(), default=0) if up_to is None else up_to
    used = [image for image, size in sizes.items() if size >= largest]
    if largest < 2 or len(used) < 2:
        enough = sum(size >= (up_to or 2) for size in sizes.values())
        raise DataError(
            f"{enough} of {len(sizes)} images (column {group!r}) have {up_to or 2} scored captions or more, and the "
            f"most is {max(sizes.values(), default=0)}. A curve needs two such images, and no image with fewer: draw "
            "more captions an image, name what they share with --group-column, or choose n with --up-to, which leaves "
            "images with fewer captions out"
        )
    tables = [np.array(pools[image]).T for image in used]
    curves = {
        name: best_of_n_curve(np.stack([expected_best(each[0], each[place], largest=largest) for each in tables]))
        for place, name in enumerate(names)
    }
    return BestOfNReport(curves, dict(sorted(Counter(map(sizes.__getitem__, used)).items())), len(sizes) - len(used))


def _pools(source: Source, group: str, names: list[str]) -> dict[str, list[Any]]:
    """{image: scores of each of its captions, in the order of `names`}."""
    pools: dict[str, list[Any]] = {}
    for number, row in enumerate(source.rows(list(dict.fromkeys([group, *names]))), start=1):
        if isinstance(row, BadRow) or row.get(group) is None:
            problem = row.message if isinstance(row, BadRow) else f"there is nothing in column {group!r}"
            raise DataError(f"row {number} of {source.name} cannot be used: {problem}")
        cells = [listed(row.get(name), source.is_csv) for name in names]
        lists = [cell if isinstance(cell, list) else [cell] for cell in cells]
        if len({len(each) for each in lists}) > 1:
            raise DataError(f"row {number} has lists of different lengths in the columns {', '.join(names)}")
        for name, values in zip(names, lists, strict=True):
            for place, value in enumerate(values):
                values[place] = _score(value, f"row {number}", name)
        pools.setdefault(image_identity(row[group]), []).extend(zip(*lists, strict=True))
    return pools


def _score(value: Any, row: str, column: str) -> float:
    try:
        number = float("nan" if value in (None, "") else value)
    except (TypeError, ValueError):
        raise DataError(f"{row}: column {column!r} must hold scores, got {value!r:.80}") from None
    if not np.isfinite(number):
        raise DataError(
            f"{row} has no finite score in {column!r}, so its caption cannot be ranked: score it again, or remove such "
            f"captions (with one caption per row: capreward filter FILE --keep '{column} is not None' -o SCORED)"
        )
    return number


def _plot(curve: Curve) -> str:
    """The curve with its interval as a band, n on a logarithmic axis; a line at the peak."""
    figure, axes = pages.blank_figure(2.6, width=4.4)
    n = np.arange(1, len(curve.mean) + 1)
    axes.fill_between(n, curve.low, curve.high, color=pages.PLAIN, alpha=0.4, lw=0)
    axes.plot(n, curve.mean, color=pages.BEST, lw=1.6)
    if curve.peak is not None:
        axes.axvline(curve.peak, color=pages.INK, lw=0.8, ls=":")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(axis="y", color=pages.SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel("n")
    return pages.page_svg(figure)
