"""A function of one's own as a metric."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from reward.checkpoints.fingerprint_objects import fingerprint_object, names_in_code
from reward.checkpoints.fingerprints import fingerprint_code
from reward.data.held_data import TakesData
from reward.data.images import load_image
from reward.data.samples import CaptionSample
from reward.data.score_table import ScoreTable
from reward.errors import CapRewardError, ConfigError, ImageError
from reward.metrics.base import MetricSpec

_FORMS = (
    "a metric is function(samples), or function(prompts, completions, **columns) as trainers call it, and gives a list "
    "with one number (or None) for each caption"
)
_TAKEN = ("error", "rank", "reward", "truncated")  # columns that scores are written beside


class FunctionScorer(TakesData):
    """A metric that is a function.

    A function that names `image` or `images` anywhere in its code needs images, and gets each as a PIL image of mode
    RGB. For others no image is opened; `function.needs_image = True` or `False` overrules what its code seems to say.

    Args:
        function: gives a list (or array) of N finite numbers, None where a caption has none; larger is better. It is
            called in one of these ways, by the names of its parameters:

            - `function(samples)`: N `CaptionSample`, under any name;
            - `function(prompts, completions, **columns)`, as trainers call a reward: those that it names of prompts
              (None for each caption), completions (texts), image, images (lists of at most one) and references (lists);
            - `function(images, captions)`, the same with plain lists; `function(image, caption)`, caption by caption;
            - an object with `rewards(samples)`, such as a `CombinedReward`. A class is called without arguments first.

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
        inner = _innermost(function)
        name = name or str(getattr(inner, "__name__", type(inner).__name__))
        name = name if name.isidentifier() else "function"  # a lambda
        try:
            if isinstance(function, type):
                function = function(**options)
            elif options:
                inspect.signature(function).bind_partial(**options)
                function = functools.partial(function, **options)
        except TypeError as error:
            raise ConfigError(
                f"{name} cannot be called with {options or 'no arguments'} ({error}); of a class give an object, such "
                f"as one that the file makes by `metric = {name}(...)`"
            ) from error
        self.function = function
        self._call = _way_to_call(getattr(function, "rewards", function), name)
        module = getattr(inner, "__module__", None) or ""
        needs_image = getattr(inner, "needs_image", getattr(function, "needs_image", None))
        if needs_image is None:
            needs_image = not {"image", "images"}.isdisjoint(_names(function, module, set()))
        self.spec = MetricSpec(
            name,
            scorer=f"{type(self).__module__}:{type(self).__name__}",
            aspects=("score",) if name in _TAKEN else (name,),
            needs_image=bool(needs_image),
            range=(-math.inf, math.inf),
            paper="none: a function of one's own",
        )
        self._code = fingerprint_code(module) if module in sys.modules else ""  # as it was when the function was made

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
        scores, errors = np.full((len(samples), 1), np.nan), dict[int, str]()
        ready = _with_images(samples, self.spec, errors) if self.spec.needs_image else dict(enumerate(samples))
        rows, step = list(ready), batch_size or len(ready) or 1
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            for row, value in zip(part, self._numbers([ready[row] for row in part]), strict=True):
                if value is None or not math.isfinite(value):
                    errors[row] = f"{self.spec.name} gave {value}"
                else:
                    scores[row] = value
        return ScoreTable(scores, self.spec.aspects, dict(sorted(errors.items())))

    def _numbers(self, samples: list[CaptionSample]) -> list[float | None]:
        name = self.spec.name
        try:
            values = self._call(samples)
            if inspect.isawaitable(values):
                with ThreadPoolExecutor(1) as pool:  # the caller may be in an event loop
                    values = pool.submit(asyncio.run, _awaited(values)).result()
        except CapRewardError:  # of a judge or a service that the function asks
            raise
        except Exception as error:
            hint = "; completions are texts here, not lists of messages" if "string indices" in str(error) else ""
            caption = getattr(error, "at_caption", None)
            at = "" if caption is None else f"; the caption is {caption!r:.80}; give None where there is no score"
            told = f"{name} raised {type(error).__name__}: {error} ({_place_of(error, self)}){hint}{at}"
            raise ConfigError(told) from error
        values = values.tolist() if hasattr(values, "tolist") else values
        is_list = hasattr(values, "__iter__") and not isinstance(values, (str, bytes, Mapping))
        found = list(values) if is_list else []
        if len(found) != len(samples):
            given = f"{len(found)} numbers" if is_list else f"{values!r:.80}"
            raise ConfigError(f"{name} gave {given} for {len(samples)} captions: {_FORMS}")
        return [value if value is None else self._number(value) for value in found]

    def _number(self, value: Any) -> float:
        try:
            return value.__float__()  # a text has no such method
        except (AttributeError, TypeError, ValueError, RuntimeError):
            told = f"{self.spec.name} gave {value!r:.80} ({type(value).__name__}) for a caption"
            raise ConfigError(f"{told}: {_FORMS}") from None

    def __reduce__(self) -> Any:
        return FunctionScorer, (self.function, self.spec.name)

    def __repr__(self) -> str:
        return f"FunctionScorer({self.spec.name})"


def _way_to_call(function: Any, name: str) -> Callable[[list[CaptionSample]], Any]:
    """How a function is given samples, by the names of its parameters."""
    if not callable(function):
        raise ConfigError(f"{name} is {function!r:.80}, and no function: {_FORMS}")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some of those written in C
        return function
    named = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each.name for each in parameters if each.default is each.empty and each.kind not in free]
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
    if "caption" in needed:
        lists = _of_one
    elif named & {"prompts", "completions"} or (takes_all and not needed):
        lists = _of_trainer
    elif named & {"captions"}:
        lists = _of_lists
    elif len(needed) > 1 or not parameters:
        raise ConfigError(f"{name} takes ({', '.join(needed)}): {_FORMS}")
    else:
        return function
    known = list(lists([]))
    if missing := [each for each in needed if each not in known]:
        raise ConfigError(
            f"the reward function {name} needs {', '.join(missing)}, and captions come with {', '.join(known)} only: "
            "give it to the trainer itself, or an object with a method rewards(samples) that knows the rest"
        )

    def call(given: dict[str, Any]) -> Any:
        return function(**{name: value for name, value in given.items() if takes_all or name in named})

    def call_one(sample: CaptionSample) -> Any:
        try:
            return call(_of_one([sample]))
        except Exception as error:
            error.at_caption = sample.candidate  # type: ignore[attr-defined]  # for the message
            raise

    if lists is _of_one:
        return lambda samples: [call_one(sample) for sample in samples]
    return lambda samples: call(lists(samples))


def _of_trainer(samples: list[CaptionSample]) -> dict[str, Any]:
    """What a trainer hands to a reward; there are no prompts."""
    return {
        "prompts": [None] * len(samples),
        "completions": [sample.candidate for sample in samples],
        "image": [sample.image for sample in samples],
        "images": [[] if sample.image is None else [sample.image] for sample in samples],
        "references": [list(sample.references) for sample in samples],
    }


def _of_lists(samples: list[CaptionSample]) -> dict[str, Any]:
    images, references = [sample.image for sample in samples], [list(sample.references) for sample in samples]
    return {"images": images, "captions": [sample.candidate for sample in samples], "references": references}


def _of_one(samples: list[CaptionSample]) -> dict[str, Any]:
    """What `_of_lists` gives for one sample, without the lists; of no sample only the names."""
    first = [each[0] if each else None for each in _of_lists(samples).values()]
    return dict(zip(("image", "caption", "references"), first, strict=True))


def _with_images(samples: list[CaptionSample], spec: MetricSpec, errors: dict[int, str]) -> dict[int, CaptionSample]:
    """Samples by row, with images decoded, each object once; those without a readable one go to `errors`."""
    decoded: dict[int, Any] = {}
    ready = {}
    for row, sample in enumerate(samples):
        if sample.image is None:
            errors[row] = f"metric {spec.name!r} needs an image, but the sample has none"
            continue
        try:
            if id(sample.image) not in decoded:
                decoded[id(sample.image)] = load_image(sample.image)
            ready[row] = replace(sample, image=decoded[id(sample.image)])
        except ImageError as error:
            errors[row] = str(error)
    return ready


def _names(function: Any, module: str | None, seen: set[int]) -> Iterator[str]:
    """Names in the code of a function, of what it is made of, and of what it uses of its own module."""
    if id(function) in seen:
        return
    seen.add(id(function))
    parts: list[Any] = list(getattr(function, "parts", ()))  # of a combination of rewards
    if isinstance(getattr(function, "spec", None), MetricSpec):
        yield from ["image"] * function.spec.needs_image
    elif isinstance(function, types.FunctionType):
        names = list(names_in_code(function.__code__))
        yield from names
        parts = [function.__globals__.get(name) for name in names]
        parts += [cell.cell_contents for cell in function.__closure__ or ()]
    elif isinstance(function, functools.partial):
        parts = [function.func, *function.args]
    elif isinstance(function, types.MethodType):
        parts = [function.__func__, function.__self__]
    elif isinstance(function, type):
        parts = list(vars(function).values())
    else:
        parts.append(type(function))
    for part in parts:
        if getattr(part, "__module__", None) == module or hasattr(part, "rewards"):
            yield from _names(part, module, seen)


def _innermost(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


async def _awaited(values: Any) -> Any:
    return await values


def _place_of(error: Exception, scorer: FunctionScorer) -> str:
    """Where the user's code raised: the last line of the traceback that is in its file."""
    frames = traceback.extract_tb(error.__traceback__)
    file = getattr(getattr(_innermost(scorer.function), "__code__", None), "co_filename", None)
    own = [frame for frame in frames if frame.filename == file] or frames
    return f"{own[-1].filename}, line {own[-1].lineno}"
