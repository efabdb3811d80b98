"""How a function of a user's is called with samples: told by the names of its parameters, and by nothing else."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from reward.data.samples import CaptionSample
from reward.errors import CapRewardError, ConfigError
from reward.metrics.base import MetricSpec

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
    text, references = sample.candidate, list(sample.references)
    return {"caption": text, "text": text, "image": sample.image, "references": references}


# {name of a parameter: what a function that has it gets}; the first that a function has counts.
_FORMS: dict[str, Callable[[list[CaptionSample]], dict[str, Any]]] = {
    "samples": _samples,
    "completions": _trainer_columns,
    "prompts": _trainer_columns,
    "captions": _lists,
    "caption": _one_caption,
    "text": _one_caption,
}


def way_to_call(function: Any, name: str) -> Callable[[list[CaptionSample]], Any]:
    """Makes of a function one that takes samples, and gives their numbers, a coroutine, or a coroutine for each.

    Args:
        function: see `reward.metrics.function.FunctionScorer`.
        name: what messages call it.

    Raises:
        ConfigError: it cannot be called, is a network, has no parameters that can be read, or has others.

    Example:
        >>> way_to_call(lambda caption: len(caption), "length")([CaptionSample("red"), CaptionSample("a star")])
        [3, 6]
    """
    if callable(getattr(function, "rewards", None)):
        return function.rewards
    torch = sys.modules.get("torch")  # without torch loaded there is no network to tell apart
    if torch is not None and isinstance(function, torch.nn.Module):
        raise ConfigError(
            f"{name} is a network, and no metric by itself: write load_scorer(METRIC, FOLDER) with the metric that "
            "scores with it and the folder of its weights, or a function that calls it, def metric(captions, images)"
        )
    function = _callable_of(function)
    if function is None:
        raise ConfigError(f"{name} is no function: {EXAMPLE}")
    form, arguments = _form_of(function, name)

    def call(samples: list[CaptionSample]) -> Any:
        values = form(samples)
        return function(**{argument: values[argument] for argument in arguments})

    def call_one_by_one(samples: list[CaptionSample]) -> list[Any]:
        values = []
        for sample in samples:
            try:
                values.append(call([sample]))
            except CapRewardError:  # of a judge or a service that the function asks
                raise
            except Exception as error:
                raise CaptionFailed(sample.candidate, error) from error
        return values

    return call_one_by_one if form is _one_caption else call


def looks_at_images(function: Any) -> bool:
    """Whether a function or a reward looks at pictures: as its `spec` or its attribute `needs_image` says, else if it
    has a parameter called `image` or `images`.

    Example:
        >>> looks_at_images(lambda captions, images: []), looks_at_images(lambda samples: [])
        (True, False)
    """
    spec = getattr(function, "spec", None)
    if isinstance(spec, MetricSpec):
        return spec.needs_image
    # A partial hides the attributes of its function.
    needs_image = getattr(innermost(function), "needs_image", None)
    if needs_image is not None:
        return bool(needs_image)
    try:
        parameters = inspect.signature(_callable_of(function)).parameters
    except (TypeError, ValueError):
        return False
    return "image" in parameters or "images" in parameters


def innermost(function: Any) -> Any:
    """The function that a `functools.partial` calls; any other function itself."""
    while isinstance(function, partial):
        function = function.func
    return function


def _callable_of(function: Any) -> Any:
    """What is called: the function itself, or the method `score` of an object that cannot be called; else None."""
    return function if callable(function) else getattr(function, "score", None)


def _form_of(function: Any, name: str) -> tuple[Callable[[list[CaptionSample]], dict[str, Any]], set[str]]:
    """The form that the parameters of a function tell, and the names of the arguments that it gets."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigError(
            f"{name} does not say which parameters it has (it is written in C): wrap it, as in "
            f"def metric(caption): return {name}(caption)"
        ) from None
    takes_all = False
    names, required = set(), []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_all = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            names.add(parameter.name)
            if parameter.default is parameter.empty:
                required.append(parameter.name)
    form = next((_FORMS[mark] for mark in _FORMS if mark in names), None)
    if form is None and takes_all and not required:
        form = _trainer_columns  # f(**columns), as some rewards of trainers are written
    if form is None:
        raise ConfigError(f"{name} takes ({', '.join(required)}): {EXAMPLE}")
    arguments = form([CaptionSample("a")])
    missing = [parameter for parameter in required if parameter not in arguments]
    if missing:
        raise ConfigError(
            f"{name} needs {', '.join(missing)}, and captions come with {', '.join(arguments)} only: give it to the "
            "trainer itself, or an object with a method rewards(samples) that knows the rest"
        )
    return form, set(arguments) if takes_all else names & set(arguments)
