"""Sources of candidates: generation options that differ from those of the call, and how many captions each gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reward.errors import ConfigError

__all__ = ["checked_sources"]

_SAMPLING = (
    *("do_sample", "temperature", "top_h", "top_k", "top_p", "min_p"),
    *("typical_p", "epsilon_cutoff", "eta_cutoff"),
)
_BEAMS = ("num_beams", "num_beam_groups", "diversity_penalty", "length_penalty", "early_stopping")


def checked_sources(
    sources: Sequence[Mapping[str, Any]], n: int, beams: bool = True
) -> list[tuple[int, dict[str, Any]]]:
    """How many candidates each source gives, and its options; together they give n.

    Args:
        sources: see `BestOfN`.
        n: candidates in all.
        beams: whether beams may be a source.

    Raises:
        ConfigError: an option is unknown, or the numbers do not add up to n.

    Example:
        >>> checked_sources([{"temperature": 0.5}, {"top_k": 0}, {"num_beams": 2}], n=7)
        [(3, {'temperature': 0.5}), (2, {'top_k': 0}), (2, {'num_beams': 2})]
    """
    known = ("n", *_SAMPLING, *(_BEAMS if beams else ()))
    if isinstance(sources, (str, Mapping)) or not all(isinstance(source, Mapping) for source in sources):
        raise ConfigError(f'sources must be a list of options, such as [{{"temperature": 0.5}}], got {sources!r:.80}')
    counts: list[int | None] = []
    for source in sources:
        unknown = [name for name in source if name not in known]
        if unknown:
            raise ConfigError(f"the source {dict(source)} has {', '.join(unknown)}; a source may have {', '.join(known)}")
        groups, count = source.get("num_beam_groups", 1), source.get("num_beams", source.get("n"))
        if count is not None and (count < 1 or groups < 1 or count % groups or source.get("n", count) != count):
            raise ConfigError(
                f"the source {dict(source)} must give at least one candidate: n is its number of beams where it has "
                "beams, and num_beam_groups divides it"
            )
        if count is None and any(name in source for name in _BEAMS):
            raise ConfigError(f"the source {dict(source)} has options of beams and no num_beams")
        counts.append(count)
    open_ones = counts.count(None)
    rest = n - sum(count for count in counts if count is not None)
    if (rest < open_ones) or (not open_ones and rest):
        raise ConfigError(f"the sources do not share n={n} candidates: they ask for {n - rest}, {open_ones} more share the rest")
    shares = iter([rest // open_ones + (place < rest % open_ones) for place in range(open_ones)] if open_ones else [])
    options = [{name: value for name, value in source.items() if name != "n"} for source in sources]
    return [(next(shares) if count is None else count, own) for count, own in zip(counts, options, strict=True)]
