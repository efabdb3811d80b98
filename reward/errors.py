"""Error classes of the library: each message names the field, the value and the way out."""

from __future__ import annotations

__all__ = [
    "CapRewardError",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "ImageError",
    "InvalidSampleError",
    "MissingExtraError",
    "OutputError",
    "UnknownMetricError",
    "WeightsError",
]


class CapRewardError(Exception):
    """Base class: `except CapRewardError` catches everything this library raises on purpose."""


class InvalidSampleError(CapRewardError, ValueError):
    """A caption sample, a column or a completion is not what the metric needs."""


class ImageError(InvalidSampleError):
    """An image cannot be read: missing file, broken bytes, too many pixels."""


class CheckpointError(CapRewardError, ValueError):
    """A checkpoint folder or Hub repository is missing files, has wrong keys or is of another metric."""


class DataError(CapRewardError, ValueError):
    """A data file or data set cannot be read, is empty, or lacks a column."""


class OutputError(CapRewardError, OSError):
    """The output cannot be written, exists already, or belongs to another run."""


class ConfigError(CapRewardError, ValueError):
    """A setting or a configuration file is not usable: unknown key, wrong type, value out of range."""


class UnknownMetricError(CapRewardError, KeyError):
    """No metric of that name is installed."""

    def __str__(self) -> str:  # KeyError shows repr(message), which hides line breaks and adds quotes
        return str(self.args[0]) if self.args else ""


class WeightsError(CapRewardError, ValueError):
    """Aspect weights name an unknown aspect, are not finite, or do not sum to a positive number."""


class MissingExtraError(CapRewardError, ImportError):
    """An optional package is needed; the message says how to install it."""
