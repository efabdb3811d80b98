"""What a reward scores with: which metric is meant, where its network is loaded, and where it waits between calls."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from reward.errors import ConfigError
from reward.metrics.base import MetricSpec, Scorer
from reward.metrics.options import check_options, dry_scorer
from reward.registry import MetricSource, as_scorer, as_source, check_loading, load_scorer

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_PATIENCE = 300.0  # seconds, as of RemoteScorer

_devices: weakref.WeakKeyDictionary[Scorer, torch.device] = weakref.WeakKeyDictionary()  # that networks were loaded to


def read_metric(
    metric: Any, source: Any, revision: str | None, options: dict[str, Any]
) -> tuple[Scorer | None, MetricSpec, Any, dict[str, Any]]:
    """Reads the arguments of a `MetricReward`, and checks them before anything is loaded.

    Returns:
        (a scorer that is loaded already, or None; facts of the metric; its checkpoint; options to load it with).

    Raises:
        ConfigError: options of a scorer that is loaded already, or a metric that needs a corpus and has none.
        UnknownMetricError, CheckpointError: there is no such metric, or no such checkpoint.
    """
    metric, source = as_scorer(metric), as_source(source)
    scorer: Any = metric if hasattr(metric, "spec") else None
    if scorer is None and isinstance(source, list):
        scorer = load_scorer(metric, source, **options)  # type: ignore[arg-type]
        source, options = scorer.judge_names, {}
    if scorer is not None:
        if options:
            raise ConfigError(f"{', '.join(options)} is of a metric given by name; give it where the scorer is made")
        spec = scorer.spec
    else:
        by_name = MetricSource.of(metric, source, revision)
        source, revision = by_name.source, by_name.revision
        check_loading(source, metric=by_name.name)
        check_options(by_name.loads, options)
        spec = replace(by_name, options=tuple(options.items())).spec
        dry = dry_scorer(by_name.spec, options) if "prompt" in options else None
        if dry is not None:
            options["prompt"] = dry.prompt  # its file need not be there in another process
    # A corpus that is fitted to the captions of a call would make rewards depend on their neighbours.
    if spec.needs_corpus and (scorer is not None or os.fspath(source) == "embedded"):
        raise ConfigError(
            f"metric {spec.name!r} weighs words by a corpus of references, and has none: a reward would depend on the "
            "other captions of its batch. Fit it on the references of the training data, "
            f"load_scorer({spec.name!r}).fit(references), and pass that scorer, or the folder it was saved in"
        )
    return scorer, spec, source, {**options, "revision": revision}


def load_beside_a_trainer(load: Callable[..., T], device: Any = None) -> T:
    """Calls `load(device=...)` without sharding, and with the random state untouched.

    Args:
        load: loads a model.
        device: for it; None is the process's own, `cuda:LOCAL_RANK` where there is CUDA, else the CPU.

    Raises:
        ConfigError: this machine has no such device.
    """
    import torch  # on use: importing this module must stay cheap

    from reward.backbones.pretrained import usable_device
    from reward.checkpoints.folders import unsharded_loading

    if device is None and torch.cuda.is_available():
        index = int(os.environ.get("LOCAL_RANK", "-1"))
        if not 0 <= index < torch.cuda.device_count():  # the launcher shows each process only its own GPU
            index = torch.cuda.current_device()
        device = f"cuda:{index}"
    if device is None:
        device = "cpu"
    # Building a network draws random numbers before the weights are read: the trainer's must not depend on that.
    home = usable_device(device)
    gpus = [home] if home.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus), unsharded_loading():
        return load(device=device)


def wait_for_judges(scorer: Scorer) -> None:
    """Has judges behind servers wait for one that restarts as long as `RemoteReward` does, unless they have a patience.

    A training run must not be lost for that; a file run ends, and goes on when it is called again.
    """
    for judge in getattr(scorer, "judges", ()):
        if getattr(judge, "patience", 0.0) is None:
            judge.patience = _PATIENCE


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
