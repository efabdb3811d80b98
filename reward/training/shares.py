"""Several data sets in one training: what share of the rows each gives."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from reward.errors import ConfigError


def parse_data(texts: Sequence[str]) -> dict[str, float | None]:
    """Reads NAME and NAME:SHARE as {name: share or None}, for `make_shares`.

    Only a number after the last colon is a share, and not if there is a file or folder of the whole name.

    Example:
        >>> parse_data(["scenes", "my/ratings:0.3"])
        {'scenes': None, 'my/ratings': 0.3}
    """
    shares: dict[str, float | None] = {}
    for text in texts:
        name, _, number = text.rpartition(":")
        try:
            source, share = (name, float(number)) if name and not Path(text).exists() else (text, None)
        except ValueError:
            source, share = text, None
        if source in shares:
            raise ConfigError(f"--data names {source!r} twice: give it once, with the sum of the shares")
        shares[source] = share
    return shares


def make_shares(data: str | os.PathLike[str] | Mapping[str, float | None]) -> dict[str, float]:
    """The share of each data set, which sum to 1. Those without a number split equally what the others leave.

    Args:
        data: one data set, or {data set: share or None}.

    Example:
        >>> make_shares({"scenes": None, "my/ratings": 0.25})
        {'scenes': 0.75, 'my/ratings': 0.25}
    """
    if not isinstance(data, Mapping):
        return {os.fspath(data): 1.0}
    given = {source: share for source, share in data.items() if share is not None}
    rest, total = [source for source in data if source not in given], math.fsum(given.values())
    for source, share in given.items():
        if len(data) == 1:
            fix = f"leave out :{share:g}, or name another with --data"
            raise ConfigError(f"{source!r} is the only data set, so it has no share: {fix}")
        if not 0 < share < 1:  # NaN as well
            raise ConfigError(f"the share of {source!r} must be a number above 0 and below 1, got {share:g}")
    if rest and total >= 1:
        names = f"the shares of {', '.join(given)} sum to {total:g}"
        raise ConfigError(f"{names} and leave nothing for {', '.join(rest)}: lower them")
    if not rest and not math.isclose(total, 1, abs_tol=1e-6):
        fix = "leave one out, and it gets the rest"
        raise ConfigError(f"the shares of {', '.join(given) or 'no data set'} sum to {total:g}, not to 1: {fix}")
    return {source: given.get(source, (1 - total) / max(1, len(rest))) for source in data}


def rows_per_epoch(sizes: Mapping[str, int], shares: Mapping[str, float]) -> dict[str, int]:
    """How many rows an epoch takes of each data set: all of the first, and of the others their shares beside it.

    Args:
        sizes: {data set: number of its rows}.
        shares: {data set: share}, of which only the proportions count; of one data set not needed.

    Example:
        >>> rows_per_epoch({"scenes": 700, "my/ratings": 20}, {"scenes": 0.7, "my/ratings": 0.3})
        {'scenes': 700, 'my/ratings': 300}
    """
    first, *others = sizes
    counts = {source: round(sizes[first] * shares[source] / shares[first]) for source in others}
    if small := [source for source, count in counts.items() if not count]:
        raise ConfigError(
            f"beside the {sizes[first]} rows of {first!r}, the share {shares[small[0]]:g} of {small[0]!r} is less than "
            "one row: raise it, or name the larger data set first"
        )
    return {first: sizes[first], **counts}
