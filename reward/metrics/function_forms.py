"""How a function of a user's is called with samples: told by the names of its parameters, and by nothing else."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from reward.data.samples import CaptionSample
from reward.errors import CapRewardError, ConfigError
from reward.metrics.base import MetricSpec

Call = Callable[[list[CaptionSample]], Any]  # gives a number for each sample, or a coroutine of them

EXAMPLE = (
    "a metric is def metric(samples), def metric(captions, images), def metric(caption, image), or as trainers call it "
    "def metric(completions, **columns), and gives one number (or None) for each caption"
)


class CaptionFailed(Exception):
    """A function that is called caption by caption raised `error`."""

    def __init__(self, caption: str, error: Exception) -> None:
        super().__init__(caption, error)
        self.caption = caption
        self.error = error


@dataclass(frozen=True)
class Form:
    """A way to call a function.

    Args:
        marks: names of parameters that tell this form from the others.
        arguments: what the parameters of this form get, by name, for a list of samples.
        one_by_one: whether the function is called for each sample by itself.
    """

    marks: frozenset[str]
    arguments: Callable[[list[CaptionSample]], dict[str, Any]]
    one_by_one: bool = False


def _samples(samples: list[CaptionSample]) -> dict[str, Any]:
    return {"samples": samples}


def _trainer_columns(samples: list[CaptionSample]) -> dict[str, Any]:
    """What a trainer hands to a reward; there are no prompts."""
    return {
        "prompts": [None] * len(samples),
        "completions": [sample.candidate for sample in samples],
        "image": [sample.image for sample in samples],
        "images": [[] if sample.image is None else [sample.image] for sample in samples],
        "references": [list(sample.references) for sample in samples],
    }


def _lists(samples: list[CaptionSample]) -> dict[str, Any]:
    return {
        "captions": [sample.candidate for sample in samples],
        "images": [sample.image for sample in samples],
        "references": [list(sample.references) for sample in samples],
    }


def _one_caption(samples: list[CaptionSample]) -> dict[str, Any]:
    [sample] = samples
    return {
        "caption": sample.candidate,
        "text": sample.candidate,
        "image": sample.image,
        "references": list(sample.references),
    }


# In this order: `f(samples, text="")` is of the first form, since its text is an option.
FORMS = (
    Form(frozenset({"samples"}), _samples),
    Form(frozenset({"prompts", "completions"}), _trainer_columns),
    Form(frozenset({"captions"}), _lists),
    Form(frozenset({"caption", "text"}), _one_caption, one_by_one=True),
)
_EMPTY = CaptionSample("a")  # of which the names of a form's arguments are read
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def way_to_call(function: Any, name: str) -> Call:
    """How a function is given samples, by the names of its parameters.

    Args:
        function: a function, a method, an object that can be called, or one with `rewards(samples)` or, as scorers of
            other libraries, `score(images, captions)`.
        name: what messages call it.

    Raises:
        ConfigError: it cannot be called, is a network, has no parameters that can be read, or has others.

    Example:
        >>> way_to_call(lambda caption: len(caption), "length")([CaptionSample("red"), CaptionSample("a star")])
        [3, 6]
    """
    if callable(getattr(function, "rewards", None)):
        return function.rewards
    if not callable(function):
        function = getattr(function, "score", function)
    _refuse_what_is_no_function(function, name)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigError(
            f"{name} does not say which parameters it has (it is written in C): wrap it, as in "
            f"def metric(caption): return {name}(caption)"
        ) from None
    form = _form_of(parameters, name)
    names = _named(parameters)
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)

    def call(samples: list[CaptionSample]) -> Any:
        arguments = form.arguments(samples)
        if takes_all and not form.one_by_one:
            return function(**arguments)
        return function(**{argument: value for argument, value in arguments.items() if argument in names})

    def call_one_by_one(samples: list[CaptionSample]) -> Any:
        values = []
        for sample in samples:
            try:
                values.append(call([sample]))
            except CapRewardError:  # of a judge or a service that the function asks
                raise
            except Exception as error:
                raise CaptionFailed(sample.candidate, error) from error
        if values and inspect.isawaitable(values[0]):
            return _all_of(values)
        return values

    return call_one_by_one if form.one_by_one else call


def looks_at_images(function: Any) -> bool:
    """Whether a function or a reward looks at pictures.

    A reward or a scorer says so in its `spec`, any other object by its attribute `needs_image`, and a function that has
    neither by a parameter called `image` or `images`.

    Example:
        >>> looks_at_images(lambda captions, images: []), looks_at_images(lambda samples: [])
        (True, False)
    """
    spec = getattr(function, "spec", None)
    if isinstance(spec, MetricSpec):
        return spec.needs_image
    stated = getattr(function, "needs_image", None)
    if stated is not None:
        return bool(stated)
    if not callable(function):
        function = getattr(function, "score", None)
    try:
        names = _named(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    return "image" in names or "images" in names


def _refuse_what_is_no_function(function: Any, name: str) -> None:
    torch = sys.modules.get("torch")  # without torch loaded there is no network to tell apart
    if torch is not None and isinstance(function, torch.nn.Module):
        raise ConfigError(
            f"{name} is a network, and no metric by itself: write load_scorer(METRIC, FOLDER) with the metric that "
            "scores with it and the folder of its weights, or a function that calls it, def metric(captions, images)"
        )
    if not callable(function):
        raise ConfigError(f"{name} is {function!r:.80}, and no function: {EXAMPLE}")


def _form_of(parameters: Collection[inspect.Parameter], name: str) -> Form:
    """The form that the names of a function's parameters tell."""
    names = _named(parameters)
    form = next((form for form in FORMS if form.marks & names), None)
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in _REST
    ]
    if form is None and not needed and any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return FORMS[1]  # f(**columns), as some rewards of trainers are written
    if form is None:
        raise ConfigError(f"{name} takes ({', '.join(needed)}): {EXAMPLE}")
    arguments = form.arguments([_EMPTY])
    missing = [parameter for parameter in needed if parameter not in arguments]
    if missing:
        raise ConfigError(
            f"{name} needs {', '.join(missing)}, and captions come with {', '.join(arguments)} only: "
            "give it to the trainer itself, or an object with a method rewards(samples) that knows the rest"
        )
    return form


def _named(parameters: Collection[inspect.Parameter]) -> set[str]:
    """Names of the parameters that can be given by name."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {parameter.name for parameter in parameters if parameter.kind in by_name}


async def _all_of(coroutines: list[Any]) -> list[Any]:
    return list(await asyncio.gather(*coroutines))
