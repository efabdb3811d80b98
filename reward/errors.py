"""Error classes of the library: each message names the field and the value, and says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

_LIKENESS = 0.8  # below it, a name that is suggested leads away more often than not


class CapRewardError(Exception):
    """Base class: `except CapRewardError` catches everything this library raises on purpose."""


class InvalidSampleError(CapRewardError, ValueError):
    """A caption sample, a column or a completion is not what the metric needs."""


class ImageError(InvalidSampleError):
    """An image cannot be read: missing file, broken bytes, too many pixels."""


class JudgeError(CapRewardError, RuntimeError):
    """A judge cannot answer.

    `failures` is {index: reason} of the questions that failed, and `results` holds the answers to the others, in the
    shape of the call. Without `failures` the judge itself failed: a wrong key, no such model, no server.
    """

    def __init__(self, message: str, *, failures: Mapping[int, str] | None = None, results: Any = None) -> None:
        super().__init__(message)
        self.failures = dict(failures or {})
        self.results = results

    @classmethod
    def of(cls, failures: Mapping[int, str], results: Any) -> JudgeError:
        """The error of some failed questions; the message gives the reason of the first."""
        index = min(failures)
        message = (
            f"{len(failures)} of {len(results)} questions have no answer, first questions[{index}]: {failures[index]}"
        )
        return cls(message, failures=failures, results=results)


class CheckpointError(CapRewardError, ValueError):
    """A checkpoint folder or Hub repository lacks files, has wrong keys, or belongs to another metric."""


class DataError(CapRewardError, ValueError):
    """A data file or data set cannot be read, is empty, or lacks a column."""


class OutputError(CapRewardError, OSError):
    """The output cannot be written, exists already, or belongs to another run."""


class ConfigError(CapRewardError, ValueError):
    """A setting or a configuration file is not usable: unknown key, wrong type, value out of range."""


class ServiceError(CapRewardError, RuntimeError):
    """A reward service cannot be reached, refuses us, or serves another metric than the run began with."""


class TrainingError(CapRewardError, ValueError):
    """A training run stops because nothing can be learned from the data, or because its loss is not a number."""


class UnknownMetricError(CapRewardError, KeyError):
    """No metric of that name is installed."""

    def __str__(self) -> str:
        # KeyError shows repr(message), which hides line breaks and adds quotes.
        return "".join(str(argument) for argument in self.args[:1])


class WeightsError(CapRewardError, ValueError):
    """Aspect weights name an unknown aspect, are not finite, or do not sum to a positive number."""


class WorkerError(CapRewardError, RuntimeError):
    """A process that scores on a device died; what was scored before is saved."""


class MissingExtraError(CapRewardError, ImportError):
    """An optional package is needed; the message says how to install it."""


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """A question for a message about an unknown name, with a blank before it; empty if no name is close to it.

    Example:
        >>> did_you_mean("lenght", ["length", "vela"]), did_you_mean("plot", ["report"])
        (" Did you mean 'length'?", '')
    """
    matches = difflib.get_close_matches(str(name), list(names), n=1, cutoff=_LIKENESS)
    if not matches:
        return ""
    return f" Did you mean {matches[0]!r}?"


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """At most three names for an unknown one: those that share a part with it, else those that are very like it.

    Example:
        >>> nearest("clip", ["length", "refclipscore", "clipscore", "clair"]), nearest("plot", ["length"])
        (['clipscore', 'refclipscore'], [])
    """
    candidates = sorted(names)
    overlapping = [text for text in candidates if min(len(name), len(text)) > 2 and (name in text or text in name)]
    return difflib.get_close_matches(name, overlapping or candidates, n=3, cutoff=0.0 if overlapping else _LIKENESS)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its kind where it has none."""
    message = str(error).strip()
    if not message:
        return type(error).__name__
    return message.splitlines()[0]
