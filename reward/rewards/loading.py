"""What a reward scores with: which metric is meant, where its network is loaded, and where it waits between calls."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from reward.errors import ConfigError
from reward.metrics.base import MetricSpec, Scorer
from reward.metrics.options import check_options, dry_scorer
from reward.registry import MetricSource, as_scorer, as_source, check_loading, load_scorer

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

T = TypeVar("T")

_devices: weakref.WeakKeyDictionary[Scorer, torch.device] = weakref.WeakKeyDictionary()  # that networks were loaded to


@dataclass(frozen=True)
class GivenMetric:
    """A metric with its source, and the options with which it is loaded; or a scorer that is loaded already."""

    spec: MetricSpec
    source: Any
    options: dict[str, Any]
    scorer: Scorer | None = None


def given_metric(metric: Any, source: Any, revision: str | None, options: dict[str, Any]) -> GivenMetric:
    """Reads the arguments of a `MetricReward`, and checks them before anything is loaded."""
    own = {"column" if name in ("rubric_column", "questions_column") else name: options[name] for name in options}
    scorer: Any = metric if hasattr(metric := as_scorer(metric), "spec") else None
    source = as_source(source)
    if scorer is None and isinstance(source, list):
        scorer, own = load_scorer(metric, source, **own), {}  # type: ignore[arg-type]
        source = scorer.judge_names
    if scorer is not None and own:
        raise ConfigError(f"{', '.join(own)} is of a metric given by name; give it where the scorer is made")
    if scorer is not None:
        spec = scorer.spec
    else:
        given = MetricSource.of(metric, source, revision)
        source, revision = given.source, given.revision
        check_loading(source, metric=given.name)
        check_options(given.loads, own)
        spec = replace(given, options=tuple(own.items())).spec
        if "prompt" in own and (dry := dry_scorer(given.spec, own)) is not None:
            own["prompt"] = dry.prompt  # its file need not be there in another process
    if spec.needs_corpus and (scorer is not None or os.fspath(source) == "embedded"):
        raise ConfigError(
            f"metric {spec.name!r} weighs words by a corpus of references, and has none: a reward would depend on the "
            "other captions of its batch. Fit it on the references of the training data, "
            f"load_scorer({spec.name!r}).fit(references), and pass that scorer, or the folder it was saved in"
        )
    return GivenMetric(spec, source, {**own, "revision": revision}, scorer)


def load_beside_a_trainer(load: Callable[..., T], device: Any = None) -> T:
    """Calls `load(device=...)` on the process's own device, without sharding, and with the random state untouched.

    Args:
        load: loads a model.
        device: for it; None is `cuda:LOCAL_RANK` where there is CUDA, else the CPU.

    Raises:
        ConfigError: this machine has no such device.
    """
    import torch  # on use: importing this module must stay cheap

    from reward.backbones.pretrained import usable_device
    from reward.checkpoints.folders import unsharded_loading

    if device is None and torch.cuda.is_available():
        # the GPU of LOCAL_RANK, unless the launcher shows each process only its own GPU
        rank = int(os.environ.get("LOCAL_RANK", -1))
        device = f"cuda:{rank if 0 <= rank < torch.cuda.device_count() else torch.cuda.current_device()}"
    if device is None and os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        logger.warning(
            "The GPUs are hidden from this process (CUDA_VISIBLE_DEVICES is empty), as in the worker of asynchronous "
            'GRPO, so the reward\'s network runs on the CPU. Use RemoteReward, or say device="cpu" if that is meant.'
        )
    device = "cpu" if device is None else device
    # building a network draws random numbers before the weights are read: the trainer's must not depend on that
    home = usable_device(device)
    gpus = [home] if home.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus), unsharded_loading():
        return load(device=device)


@contextmanager
def away_between_calls(scorer: Scorer) -> Iterator[None]:
    """Brings a scorer's network to the device that it was loaded to, and at the end to the CPU's memory.

    Raises:
        ConfigError: the scorer runs no network of its own.
    """
    import torch

    model = getattr(scorer, "model", None)
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(f"metric {scorer.spec.name!r} runs no network of its own that could be moved: drop offload")
    device = _devices.setdefault(scorer, next(model.parameters()).device)
    model.to(device)
    try:
        yield
    finally:
        model.to("cpu")
        if device.type == "cuda" and torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # gives the memory back to other libraries, such as vLLM
