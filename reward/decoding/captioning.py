"""Captions images by a model: candidates are stored as they come, then scored, and the best one is chosen."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from reward.data.samples import check_encodable, is_blank
from reward.data.written_captions import caption_in
from reward.decoding.captioners import LocalCaptioner, Sampling, ServerCaptioner
from reward.decoding.photos import ImageRow
from reward.decoding.selection import distinct_share, rank
from reward.errors import ConfigError, DataError, InvalidSampleError
from reward.judges import Usage
from reward.judges.chat import Sampled
from reward.registry import MetricSource
from reward.scoring.dataset import rerank_dataset
from reward.scoring.kept import Kept
from reward.scoring.runs import OtherRunError, ResumableRun, progress_bar
from reward.scoring.several import Metrics
from reward.scoring.writers import check_output_name, json_line, write_atomically


@dataclass
class CaptioningSummary:
    """The outcome of a run: `images` rows of `output`, of which `captioned` have a caption.

    `candidates` were written for them by all runs, `resumed` of them by earlier ones; the length limit cut `truncated`.
    `distinct` is the share that repeats no other of its image (None with one an image). `problems` is {reason: images}
    without a caption, of which the same call tries `to_try_again` again. `already_done` says that the output was there,
    from the same images and settings.
    """

    output: Path
    images: int
    captioned: int = 0
    candidates: int = 0
    resumed: int = 0
    truncated: int = 0
    distinct: float | None = None
    problems: dict[str, int] = field(default_factory=dict)
    to_try_again: int = 0
    mean_of_all: float | None = None
    mean_of_chosen: float | None = None
    checkpoints: dict[str, str | None] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    already_done: bool = False


def caption_images(
    images: Sequence[ImageRow],
    captioner: ServerCaptioner | LocalCaptioner,
    output: str | os.PathLike[str],
    *,
    metric: str | Sequence[str | MetricSource] | None = None,
    source: str | os.PathLike[str] = "embedded",
    weights: Mapping[str, float] | None = None,
    n: int | None = None,
    sampling: Sampling | None = None,
    keep_candidates: bool = False,
    batch_size: int | None = None,
    part_rows: int | None = None,
    devices: str | Sequence[str] | None = None,
    overwrite: bool = False,
    progress: bool = False,
    **options: Any,
) -> CaptioningSummary:
    """Writes one row an image: `image` (its path from the folder of the output), `caption`, `reward` and `error`.

    Candidates are in `<output>.partial` as they come, without their reasoning (`caption_in`), and are scored
    afterwards by `rerank_dataset`. After Ctrl-C or a kill, the same call asks only for what is missing. Images that got
    no caption, or fewer candidates than `n`, say because the file is broken or the server refused them, have a reason
    in `error`, and the same call tries them again.

    Args:
        images: see `read_images`.
        captioner: writes the candidates.
        output: `.jsonl` file.
        metric: by which captions are chosen, or several, such as `["vela", "beitscore=my-beitscore"]`; None for one
            caption an image as it comes: rows have no `reward`, and no `error` beside a caption. source, weights,
            batch_size, part_rows, devices and further options are those of `rerank_dataset`.
        n: candidates an image; None for 16, or 1 without a metric.
        sampling: prompt, temperature, ...; None for the defaults.
        keep_candidates: leave `<output>.candidates.jsonl`: all candidates, best first, with their scores, as `capreward
            rerank` writes them.
        overwrite: replace a finished output. Candidates of an unfinished run with the same settings are kept: they may
            have been paid for.
        progress: show progress bars.

    Raises:
        ConfigError, DataError, OutputError: a setting, the images or the output cannot be used.
        JudgeError, ScoringInterrupted: the server is down, or Ctrl-C; what came before is kept.

    Example:
        >>> import tempfile
        >>> from reward.decoding.captioners import LocalCaptioner
        >>> from reward.decoding.photos import read_images
        >>> from reward.scenes import make_dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     make_dataset(1, seed=0)[0]["image"].save(f"{folder}/drawing.png")
        ...     captioner, short = LocalCaptioner("embedded", device="cpu"), Sampling(max_tokens=8)
        ...     summary = caption_images(
        ...         read_images(folder), captioner, f"{folder}/c.jsonl", metric="length", n=2, sampling=short
        ...     )
        >>> summary.captioned, summary.candidates
        (1, 2)
    """
    start = time.perf_counter()
    output = Path(output)
    sampling = sampling or Sampling()
    check_output_name(output, ".jsonl")
    if n is None:
        n = 1 if metric is None else 16
    if n < 1:
        raise ConfigError(f"--n (n=) must be at least 1, got {n}")
    if n > 1 and sampling.temperature == 0:
        raise ConfigError("--temperature 0 writes the same caption n times: raise it, or take --n 1")
    has_references = any(row.references for row in images)
    metrics = None
    if metric is not None:
        metrics = Metrics.of(metric, source, weights=weights, **options)
        metrics.check_one_number()
        if not has_references and any(spec.needs_references for spec in metrics.specs):
            raise DataError(
                f"metric {metrics.name!r} needs references: give --images a data file that has them, or another metric"
            )
    elif n > 1 or keep_candidates or weights is not None:
        raise ConfigError(
            "--n (n=) above 1, --keep-candidates and --weights go with a --metric (metric=), which chooses the caption"
        )

    drawing = _facts_of_drawing(captioner, n, sampling)
    image_names = [os.path.relpath(row.path, output.parent) if row.problem is None else None for row in images]
    content = json.dumps([[name, row.key, *row.references] for name, row in zip(image_names, images, strict=True)])
    manifest = {
        **drawing,
        **({"metric": None} if metrics is None else metrics.identity),
        "keep": keep_candidates,
        "images": hashlib.sha256(content.encode()).hexdigest(),
    }
    run = ResumableRun(output, manifest, overwrite=overwrite)
    finished = run.finished(
        lambda record: record["summary"], "(other images, model, metric or settings); nothing was asked"
    )
    if finished is not None:
        usage = Usage(**finished["usage"])
        return CaptioningSummary(**{**finished, "usage": usage, "output": output, "already_done": True})

    with _open_store(run.partial, drawing, overwrite) as store:
        candidates = _Candidates(images, store)
        summary = CaptioningSummary(output, len(images), usage=captioner.usage)
        summary.resumed = sum(candidates.counts().values())
        missing = candidates.missing(n)
        if missing:
            store.describe("captioner", captioner.check())
        # Loaded before captions are paid for: a metric that cannot be loaded costs nothing.
        scorer: Any = metric if metrics is None or devices is not None else metrics.load()
        if missing:
            with progress_bar(progress, done=len(images) - len(missing), total=len(images), doing="writing") as advance:
                for row, captions in captioner.sample(missing, n, sampling, candidates.counts()):
                    candidates.add(row, captions)
                    advance(int(candidates.has(row, n)), int(row in candidates.problems))
        if not candidates.captions:
            reason = next(iter(candidates.problems.values()), "the model wrote nothing")
            raise DataError(f"no image could be captioned; the first: {reason}")

        if metrics is None:
            write_atomically(output, lambda path: _write_captions(path, candidates, image_names, summary))
        else:
            settings: dict[str, Any] = {"weights": weights, "batch_size": batch_size, "part_rows": part_rows}
            if devices is not None:
                settings.update({"devices": devices, "source": source, **options})
            settings.update({"image_root": output.parent, "progress": progress})
            rows = candidates.rows(image_names, has_references)
            ranked = output.with_name(f"{output.name}.candidates.jsonl")
            try:
                rerank_dataset(rows, scorer, ranked, **settings, overwrite=overwrite)
            except OtherRunError:  # of this very run, when it had fewer candidates or another metric
                rerank_dataset(rows, scorer, ranked, **settings, overwrite=True)
            write_atomically(output, lambda path: _write_best(path, candidates, image_names, ranked, summary))
            ranked.with_name(ranked.name + ".summary.json").unlink(missing_ok=True)
            if not keep_candidates:
                ranked.unlink()
            summary.checkpoints = metrics.checkpoints
        texts = [[caption.text for caption in captions] for captions in candidates.captions.values()]
        summary.distinct = distinct_share(texts)
        summary.to_try_again = len(candidates.problems)
        summary.seconds = time.perf_counter() - start
        run.finish({"summary": {**asdict(summary), "output": str(output)}}, unfinished=bool(candidates.problems))
        if not candidates.problems:  # with some, the same call goes on with them
            store.delete()
    return summary


class _Candidates:
    """The captions of every image so far, in memory and in the store of the run.

    Args:
        images: what is captioned. An image that comes twice is captioned twice.
        store: holds `[key of the row, [[text, truncated], ...]]` in the order in which captions came.
    """

    def __init__(self, images: Sequence[ImageRow], store: Kept) -> None:
        self.images, self.store = images, store
        self.captions: dict[int, list[Sampled]] = {}
        self.problems: dict[int, str] = {}
        self._keys: list[str] = []
        repetitions = Counter[str]()
        for number, row in enumerate(images):
            repetitions[row.key] += 1
            self._keys.append(f"{row.key} {repetitions[row.key]}")
            if row.problem is not None:
                self.problems[number] = row.problem
        stored: dict[str, list[Sampled]] = {}
        for key, captions in store:
            stored.setdefault(key, []).extend(Sampled(text, truncated) for text, truncated in captions)
        for number, key in enumerate(self._keys):
            if key in stored:
                self.captions[number] = stored[key]

    def add(self, row: int, captions: list[Sampled] | str) -> None:
        """Stores captions of a row, without their reasoning; or the reason why no more come."""
        if isinstance(captions, str):
            self.problems[row] = captions
            return
        captions = [Sampled(caption_in(caption.text), caption.truncated) for caption in captions]
        try:
            for caption in captions:
                check_encodable(caption.text, "a caption")
        except InvalidSampleError as error:
            self.problems[row] = str(error)
            return
        self.store.add([[self._keys[row], [[caption.text, caption.truncated] for caption in captions]]])
        self.captions.setdefault(row, []).extend(captions)

    def counts(self) -> dict[int, int]:
        """{row: number of its captions}."""
        return {row: len(captions) for row, captions in self.captions.items()}

    def has(self, row: int, n: int) -> bool:
        """Whether a row has n captions."""
        return len(self.captions.get(row, ())) >= n

    def missing(self, n: int) -> list[tuple[int, Path]]:
        """(row, path) of images that have fewer than n captions and no problem."""
        return [
            (number, row.path)
            for number, row in enumerate(self.images)
            if number not in self.problems and not self.has(number, n)
        ]

    def rows(self, image_names: Sequence[str | None], has_references: bool) -> Any:
        """A `datasets.Dataset` for `rerank_dataset`, a row an image that has captions."""
        from datasets import Dataset  # on use: a large package

        rows = []
        for number, captions in sorted(self.captions.items()):
            row: dict[str, Any] = {
                "image": image_names[number],
                "candidates": [caption.text for caption in captions],
            }
            if has_references:
                row["references"] = list(self.images[number].references)
            rows.append(row)
        return Dataset.from_list(rows)


def _facts_of_drawing(captioner: ServerCaptioner | LocalCaptioner, n: int, sampling: Sampling) -> dict[str, Any]:
    """What stored candidates depend on: the model and the settings of sampling."""
    facts = {"task": "caption", "model": captioner.name, "n": n, **asdict(sampling)}
    if isinstance(captioner, LocalCaptioner):
        facts["captioner"] = captioner.fingerprint
    elif getattr(captioner, "extra_body", None):
        facts["extra_body"] = captioner.extra_body
    return facts


def _open_store(path: Path, run: dict[str, Any], overwrite: bool) -> Kept:
    """The candidates so far. Those of the same settings are continued in any case."""
    try:
        return Kept(path, run, what="replies")
    except OtherRunError:
        if not overwrite:
            raise
        return Kept(path, run, overwrite=True, what="replies")


def _write_captions(
    path: Path, candidates: _Candidates, image_names: Sequence[str | None], summary: CaptioningSummary
) -> None:
    """Writes a row an image with its only caption, which no metric scores, and counts the rows in the summary."""
    with path.open("w", encoding="utf-8") as file:
        for number, name in enumerate(image_names):
            captions = candidates.captions.get(number, [])
            summary.candidates += len(captions)
            summary.truncated += sum(caption.truncated for caption in captions)
            if captions and not is_blank(captions[0].text):
                row = {"image": name, "caption": captions[0].text}
                summary.captioned += 1
            else:
                # Only here, so that captions without an error have no column that `score` would write again.
                reason = candidates.problems.get(number, "the model wrote nothing")
                row = {"image": name, "caption": None, "error": reason}
                summary.problems[reason] = summary.problems.get(reason, 0) + 1
            file.write(json_line(row))


def _write_best(
    path: Path,
    candidates: _Candidates,
    image_names: Sequence[str | None],
    ranked: Path,
    summary: CaptioningSummary,
) -> None:
    """Writes a row an image with its best caption, and counts the rows in the summary.

    Args:
        path: the output.
        candidates: captions of the rows, and why some have none.
        image_names: of each row, None where the image cannot be read.
        ranked: the rows that have captions as `rerank_dataset` writes them, in order.
        summary: is filled.
    """
    all_rewards: list[float] = []
    best_rewards: list[float] = []
    with ranked.open(encoding="utf-8") as lines, path.open("w", encoding="utf-8") as file:
        for number, name in enumerate(image_names):
            problem = candidates.problems.get(number)
            captions = candidates.captions.get(number, [])
            summary.candidates += len(captions)
            summary.truncated += sum(caption.truncated for caption in captions)
            line: dict[str, Any] = json.loads(next(lines)) if captions else {"rewards": [], "error": problem}
            rewards = [reward for reward in line["rewards"] or [] if reward is not None]
            row: dict[str, Any] = {"image": name, "caption": None, "reward": None, "error": line["error"]}
            if rewards:
                best = rank(line["rewards"])[0]
                row.update(caption=line["candidates"][best], reward=line["rewards"][best], error=problem)
                summary.captioned += 1
                all_rewards += rewards
                best_rewards.append(row["reward"])
            else:
                reason = line["error"] or "no candidate has a reward"
                summary.problems[reason] = summary.problems.get(reason, 0) + 1
            file.write(json_line(row))
    if all_rewards:
        summary.mean_of_all, summary.mean_of_chosen = fmean(all_rewards), fmean(best_rewards)
