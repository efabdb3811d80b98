"""The actors of a Ray cluster: where they run, what they give, and what is said if the cluster has no room or fails."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from integrations.ray_data.fragments import Fragment
from integrations.ray_data.parts import PartScorer
from reward.errors import ConfigError, WorkerError, first_line


def records_of(
    job: tuple[Any, ...],
    missing: list[Fragment],
    *,
    address: str | None,
    workers: int | None,
    cpus: float,
    gpus: float,
) -> Generator[dict[str, Any], None, None]:
    """What `PartScorer.record` gives of each fragment, in the order in which they are done.

    Args:
        job: arguments of PartScorer.
        missing: the fragments.
        address, workers, cpus, gpus: see `score_files`.

    Raises:
        ConfigError: the cluster cannot be reached, or has no room.
        WorkerError: it failed.
    """
    if workers == 0:
        yield from map(PartScorer(*job).record, missing)
        return
    import ray

    lines = [{"fragment": json.dumps(asdict(fragment))} for fragment in missing]
    with _cluster(address) as resources:
        size = min(_workers(resources, workers, cpus, gpus), len(missing))
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        # One block a fragment: Ray then hands fragments to actors one by one, and repeats those of an actor that died.
        records = ray.data.from_items(lines, override_num_blocks=len(missing)).map_batches(
            PartScorer,
            fn_constructor_args=job,
            batch_size=1,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(size=size),
            num_cpus=cpus,
            num_gpus=gpus or None,
        )
        try:
            for row in records.iter_rows():
                yield json.loads(row["record"])
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            raise WorkerError(
                f"the Ray cluster failed ({type(cause).__name__}: {first_line(cause):.300}). The parts that are done "
                "stay; run the same again"
            ) from error


@contextmanager
def _cluster(address: str | None) -> Iterator[dict[str, float]]:
    """Resources of a cluster; one that is started or connected to here is left at the end."""
    import ray

    if ray.is_initialized():
        if address is not None:
            raise ConfigError("this process is connected to a Ray cluster already; leave out the address")
        yield ray.cluster_resources()
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its notes on stderr; errors are raised
    cluster = address
    if cluster is None and "RAY_ADDRESS" not in os.environ:  # where Ray looks by itself
        cluster = "local"
    problem, options = f"no Ray cluster can be reached at {cluster}", {}
    if cluster == "local":
        problem, options = "Ray cannot be started on this machine", {"include_dashboard": False}
    try:
        ray.init(cluster, logging_level="ERROR", log_to_driver=False, **options)
    except Exception as error:  # Ray raises plain exceptions, as when a busy machine takes too long to start it
        raise ConfigError(f"{problem}: {error}"[:500]) from error
    try:
        yield ray.cluster_resources()
    finally:
        ray.shutdown()


def _workers(resources: Mapping[str, float], wanted: int | None, cpus: float, gpus: float) -> int:
    """How many workers there are; Ray would wait forever for resources that do not come."""
    room = int(resources.get("CPU", 0) / cpus + 1e-6)
    if gpus:
        room = min(room, int(resources.get("GPU", 0) / gpus + 1e-6))
    if room < (wanted or 1):
        hint = "give workers less, or start nodes first"
        if room:
            hint = f"there is room for --workers {room}"
        raise ConfigError(
            f"{wanted or 1} workers of {cpus:g} CPUs and {gpus:g} GPUs do not fit into the cluster, which has "
            f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs; {hint}"
        )
    return wanted or room
