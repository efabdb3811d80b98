"""Sources of candidates: generation options that differ from those of the call, and how many captions each gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reward.errors import ConfigError

__all__ = ["checked_sources"]

_BEAMS = ("num_beams", "num_beam_groups", "diversity_penalty", "length_penalty", "early_stopping")
_SAMPLING = (
    "do_sample",
    "temperature",
    "top_h",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
)


def checked_sources(sources: Sequence[Mapping[str, Any]], n: int, *, beams: bool) -> list[tuple[int, dict[str, Any]]]:
    """How many candidates each source gives, and its options; together they give n.

    Args:
        sources: see `BestOfN`.
        n: candidates in all.
        beams: whether beams may be a source.

    Raises:
        ConfigError: an option is unknown, or the numbers do not add up to n.

    Example:
        >>> checked_sources([{"temperature": 0.5}, {"top_k": 0}, {"num_beams": 2}], n=7, beams=True)
        [(3, {'temperature': 0.5}), (2, {'top_k': 0}), (2, {'num_beams': 2})]
    """
    known = ("n", *_SAMPLING, *(_BEAMS if beams else ()))
    for source in sources:
        unknown = sorted(set(source) - set(known)) if isinstance(source, Mapping) else [repr(source)]
        if unknown:
            raise ConfigError(f"a source is a dictionary with any of {', '.join(known)}; got {', '.join(unknown)}")
        groups = source.get("num_beam_groups", 1)
        if set(source) & set(_BEAMS) and (source.get("num_beams", 0) < 1 or groups < 1 or source["num_beams"] % groups):
            raise ConfigError(f"the source {dict(source)} needs num_beams, a multiple of num_beam_groups")
    counts = [source.get("num_beams", source.get("n", 0)) for source in sources]
    rest, unsaid = n - sum(counts), [place for place, count in enumerate(counts) if count == 0]
    if rest < len(unsaid) or (rest and not unsaid):
        raise ConfigError(f"the sources {list(sources)!r} do not share n={n} candidates: {n - rest} are asked for")
    for number, place in enumerate(unsaid):
        counts[place] = rest // len(unsaid) + (number < rest % len(unsaid))
    options = [{name: value for name, value in source.items() if name != "n"} for source in sources]
    return list(zip(counts, options, strict=True))
