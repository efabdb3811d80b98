"""A function of a user's as a metric."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import os
import sys
import traceback
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from reward.checkpoints.code import fingerprint_code
from reward.checkpoints.fingerprint_objects import fingerprint_object
from reward.data.held_data import TakesData
from reward.data.images import load_image
from reward.data.samples import CaptionSample
from reward.data.score_table import ScoreTable
from reward.errors import CapRewardError, ConfigError, ImageError
from reward.metrics.base import MetricSpec
from reward.metrics.function_forms import EXAMPLE, CaptionFailed, innermost, looks_at_images, way_to_call

_OUTPUT_COLUMNS = ("error", "rank", "reward", "truncated")  # which scores are written beside


class FunctionScorer(TakesData):
    """A metric that is a function.

    A function with a parameter `image` or `images` gets a PIL image of mode RGB for each caption; its attribute
    `needs_image`, True or False, overrules that. Else no picture is opened: `sample.image` is what the data hold.

    Args:
        function: gives a list (or array) of N finite numbers, None where a caption has none; larger is better. The
            names of its parameters tell how it is called; further ones must have a default:

            - `function(samples)`: N `CaptionSample`;
            - `function(prompts, completions, **columns)`, as trainers call a reward: those that it names of prompts
              (None for each caption), completions (texts), image, images (lists of at most one) and references (lists);
            - `function(captions, images, references)`: lists, of which it may leave out the last two;
            - `function(caption, image, references)`: caption by caption; `text` means caption, too;
            - an object with `rewards(samples)`, such as a `CombinedReward`, or with `score(images, captions)`. A class
              is called without arguments first.

            It may be asynchronous. An exception in it ends the scoring, since it is a fault of the code.
        name: of the metric and of its one aspect (`score`, if the name is that of a column which each output has);
            default: that of the function.
        options: further arguments of the function, or of the class, by name.

    Raises:
        ConfigError: it cannot be called in any of these ways; in a call: it raised, or gave something else.

    Example:
        >>> def brevity(samples):
        ...     return [-float(len(sample.candidate)) for sample in samples]
        >>> FunctionScorer(brevity).score([CaptionSample("A star.")]).scores.tolist()
        [[-7.0]]
    """

    def __init__(self, function: Any, name: str | None = None, **options: Any) -> None:
        inner = innermost(function)
        name = name or str(getattr(inner, "__name__", type(inner).__name__))
        if not name.isidentifier():  # a lambda
            name = "function"
        self.function = _with_options(function, name, options)
        self._call = way_to_call(self.function, name)
        self.spec = MetricSpec(
            name,
            scorer=f"{type(self).__module__}:{type(self).__name__}",
            aspects=("score",) if name in _OUTPUT_COLUMNS else (name,),
            needs_image=looks_at_images(self.function),
            range=(-math.inf, math.inf),
            paper="none: a function of one's own",
        )
        # The code of the module, as it was when the function was made.
        # Read at once, because the file may be edited before anybody asks for the fingerprint.
        module = getattr(inner, "__module__", None)
        self._code = fingerprint_code(module) if module in sys.modules else ""

    @property
    def fingerprint(self) -> str:
        """Changes with the file of the function, and with all that the function holds."""
        return fingerprint_object(self, leave_out=("place", "_call"))

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Refuses: nothing in a checkpoint runs code."""
        raise ConfigError(f"{self.spec.name} is a function, and nothing in a checkpoint runs code: keep its file")

    def score_samples(
        self, samples: list[CaptionSample], batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        """Scores (N, 1); the function gets at most `batch_size` samples at a time."""
        scores = np.full((len(samples), 1), np.nan)
        readable, errors = dict(enumerate(samples)), dict[int, str]()
        if self.spec.needs_image:
            readable, errors = _with_images(samples, self.spec.name)
        rows = list(readable)
        step = batch_size or max(1, len(rows))
        # Without a batch size all at once, as a function may compare its captions, and its author knows what it holds.
        for start in range(0, len(rows), step):
            batch = rows[start : start + step]
            values = self._values([readable[row] for row in batch])
            for row, value in zip(batch, values, strict=True):
                number = self._number(value)
                if number is None or not math.isfinite(number):
                    errors[row] = f"{self.spec.name} gave {number}"
                else:
                    scores[row] = number
        return ScoreTable(scores, self.spec.aspects, dict(sorted(errors.items())))

    def _values(self, samples: list[CaptionSample]) -> list[Any]:
        """What the function gives for each sample."""
        try:
            values = self._call(samples)
            awaitable = values[0] if isinstance(values, list) and values else values
            if inspect.isawaitable(awaitable):
                # In a thread of its own, since the caller may be in an event loop, which cannot run another.
                with ThreadPoolExecutor(1) as pool:
                    values = pool.submit(asyncio.run, _awaited(values)).result()
        except CapRewardError:  # of a judge or a service that the function asks
            raise
        except CaptionFailed as failure:
            hint = f"; the caption is {failure.caption!r:.80}; give None where there is no score"
            raise self._fault(failure.error, hint) from failure.error
        except Exception as error:
            raise self._fault(error) from error
        if hasattr(values, "tolist"):
            values = values.tolist()
        if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
            raise ConfigError(f"{self.spec.name} gave {values!r:.80} for {len(samples)} captions: {EXAMPLE}")
        values = list(values)
        if len(values) != len(samples):
            raise ConfigError(f"{self.spec.name} gave {len(values)} numbers for {len(samples)} captions: {EXAMPLE}")
        return values

    def _fault(self, error: Exception, hint: str = "") -> ConfigError:
        """An exception of the user's code, with the last line of the traceback that is in the user's file."""
        frames = traceback.extract_tb(error.__traceback__)
        file = getattr(getattr(innermost(self.function), "__code__", None), "co_filename", None)
        last = ([frame for frame in frames if frame.filename == file] or frames)[-1]
        kind = type(error).__name__
        return ConfigError(f"{self.spec.name} raised {kind}: {error} ({last.filename}, line {last.lineno}){hint}")

    def _number(self, value: Any) -> float | None:
        """What the function gave for a caption as a number; None stays."""
        if value is None:
            return None
        try:
            return value.__float__()  # a text has no such method
        except (AttributeError, TypeError, ValueError, RuntimeError):
            kind = type(value).__name__
            raise ConfigError(f"{self.spec.name} gave {value!r:.80} ({kind}) for a caption: {EXAMPLE}") from None

    def __reduce__(self) -> Any:
        return FunctionScorer, (self.function, self.spec.name)

    def __repr__(self) -> str:
        return f"FunctionScorer({self.spec.name})"


class PlacedFunction(FunctionScorer):
    """A metric that is a function by its place, by which another process finds it; see `load_function`."""

    def __init__(self, place: str, function: Any, name: str, options: dict[str, Any]) -> None:
        super().__init__(function, name, **options)
        self.place, self._options = place, options

    def __reduce__(self) -> Any:  # not the function, since its module has a name of this process
        from reward.metrics.function_places import load_function

        return functools.partial(load_function, **self._options), (self.place, self.spec.name)


def _with_options(function: Any, name: str, options: dict[str, Any]) -> Any:
    """An object of a class; a function with the further arguments that were given for it."""
    try:
        if isinstance(function, type):
            return function(**options)
        if options:
            inspect.signature(function).bind_partial(**options)
            return functools.partial(function, **options)
        return function
    except TypeError as error:
        raise ConfigError(
            f"{name} cannot be called with {options or 'no arguments'} ({error}); of a class give an object, such "
            f"as one that the file makes by `metric = {name}(...)`"
        ) from error


def _with_images(samples: list[CaptionSample], name: str) -> tuple[dict[int, CaptionSample], dict[int, str]]:
    """Samples by row, with images decoded, each object once; and for rows without a readable image why."""
    readable: dict[int, CaptionSample] = {}
    errors: dict[int, str] = {}
    decoded: dict[int, Any] = {}  # by the id of the image, which the samples keep alive
    for row, sample in enumerate(samples):
        if sample.image is None:
            errors[row] = f"metric {name!r} needs an image, but the sample has none"
            continue
        try:
            if id(sample.image) not in decoded:
                decoded[id(sample.image)] = load_image(sample.image)
            readable[row] = replace(sample, image=decoded[id(sample.image)])
        except ImageError as error:
            errors[row] = str(error)
    return readable, errors


async def _awaited(values: Any) -> Any:
    """What an asynchronous function gives; of one that is called caption by caption a list."""
    return await asyncio.gather(*values) if isinstance(values, list) else await values
