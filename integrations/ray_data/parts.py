"""PartScorer, which has the local file run make the parts of fragments, and its actors in a Ray cluster."""

from __future__ import annotations

import json
import logging
import os
import platform
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from integrations.ray_data.fragments import Fragment
from reward.errors import CapRewardError, ConfigError, DataError, OutputError, WorkerError, first_line
from reward.scoring.batch_scorer import LoadedOnce
from reward.scoring.file_run import FileRun
from reward.scoring.several import Metrics
from reward.scoring.summary import ScoringSummary, Selection

RECORDS = "_records"  # a folder in the output's: readers of Parquet leave out names that begin with "_"


@dataclass
class PartScorer:
    """Has the parts of fragments made. A callable class for `Dataset.map_batches`.

    Args:
        metrics: a pickled one stands for the checkpoints as they were where the run began.
        columns, settings: arguments of `find_columns`, and further ones of `FileRun`.
        output: folder of the parts.
        run: names the run, see `Fragment.part`.
    """

    metrics: Metrics
    columns: Mapping[str, Any]
    settings: Mapping[str, Any]
    output: Path
    run: str

    def __post_init__(self) -> None:
        # Files of a checkpoint that change during a run would mix the scores of two checkpoints in its parts.
        self.metrics = LoadedOnce(self.metrics)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The records of fragments; both are JSON texts, {"fragment": their fields} and {"record": what was made}."""
        fragments = [Fragment(**json.loads(text)) for text in batch["fragment"]]
        return {"record": [json.dumps(self.record(fragment)) for fragment in fragments]}

    def record(self, fragment: Fragment) -> dict[str, Any]:
        """Makes the part of a fragment: {"part", "summary"}; {"problem"} of one file; or {"stop"} of the whole run."""
        part = fragment.part(self.run)
        try:
            return {"part": part, "summary": self._make(fragment, self.output / part).to_json()}
        except DataError as error:
            return {"problem": str(error)}
        except CapRewardError as error:
            return {"stop": f"{error} (on {platform.node()})"}

    def _make(self, fragment: Fragment, path: Path) -> ScoringSummary:
        """Has the local file run make a part, or tell that it is there already."""
        try:
            return self._score(fragment, path, overwrite=False)
        except OutputError:
            if not path.exists():
                raise
        # A part that is refused is of other rows or pictures, or damaged; it is made anew. Its metric and settings are
        # those of this run, since its name says so.
        return self._score(fragment, path, overwrite=True)

    def _score(self, fragment: Fragment, path: Path, *, overwrite: bool) -> ScoringSummary:
        reader = fragment.open()
        # Paths never start at the working folder of a worker.
        root = self.settings["image_root"] or reader.folder
        settings = {**self.settings, "image_root": root, "records": path.parent / RECORDS}
        run = FileRun(reader, self.metrics, path, dict(self.columns), Selection(), **settings)
        return run(overwrite=overwrite, progress=False)


def records_of(
    scorer: PartScorer,
    fragments: Sequence[Fragment],
    *,
    address: str | None,
    workers: int | None,
    cpus: float,
    gpus: float,
) -> Generator[dict[str, Any], None, None]:
    """What `PartScorer.record` gives of each fragment, as they are done; see `score_files` for the other arguments.

    Raises:
        ConfigError: the cluster cannot be reached, or has no room.
        WorkerError: it failed.
    """
    if workers == 0:
        yield from map(scorer.record, fragments)
        return
    import ray

    lines = [{"fragment": json.dumps(asdict(fragment))} for fragment in fragments]
    with _cluster(address) as resources:
        room = int(resources.get("CPU", 0) / cpus + 1e-6)
        if gpus:
            room = min(room, int(resources.get("GPU", 0) / gpus + 1e-6))
        if room < (workers or 1):  # Ray would wait forever for resources that do not come
            raise ConfigError(
                f"{workers or 1} workers of {cpus:g} CPUs and {gpus:g} GPUs do not fit into the cluster, which has "
                f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs: there is room for "
                f"--workers {room}"
            )
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        # One block a fragment: Ray then hands fragments to actors one by one, and repeats those of an actor that died.
        records = ray.data.from_items(lines, override_num_blocks=len(lines)).map_batches(
            PartScorer,
            fn_constructor_kwargs=vars(scorer),
            batch_size=1,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(size=min(workers or room, len(lines))),
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
    """Gives the resources of a cluster; one that was started here is left at the end."""
    import ray

    if address is None and ray.is_initialized():
        yield ray.cluster_resources()
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its notes on stderr; errors are raised
    if address is None and "RAY_ADDRESS" not in os.environ:  # where Ray looks by itself
        address = "local"
    options = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address, logging_level="ERROR", log_to_driver=False, **options)
    except Exception as error:  # Ray raises plain exceptions, as when a busy machine takes too long to start it
        raise ConfigError(f"no Ray cluster can be reached at {address}: {error}"[:500]) from error
    # The driver may live on, as in a notebook: a cluster of this run alone is not left behind.
    try:
        yield ray.cluster_resources()
    finally:
        ray.shutdown()
