"""Captions images by a model: candidates are stored as they come, then scored, and the best one is chosen."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import reward
from reward.decoding.captioners import LocalCaptioner, Sampling, ServerCaptioner
from reward.decoding.endings import nearly_greedy
from reward.decoding.pools import CandidatePools, ImageRow
from reward.decoding.selection import distinct_share, rank
from reward.errors import ConfigError, DataError, InvalidSampleError
from reward.image_files import image_file
from reward.judges import Usage
from reward.registry import MetricSource
from reward.samples import find_column, one_image, read_references
from reward.scoring.dataset import rerank_dataset
from reward.scoring.image_root import image_root as find_root
from reward.scoring.kept import Kept
from reward.scoring.progress import progress_bar
from reward.scoring.readers import BadRow, open_source
from reward.scoring.runs import OtherRunError, ResumableRun
from reward.scoring.several import Metrics, options_of
from reward.scoring.writers import check_output_name, json_line, write_atomically

__all__ = ["CaptioningSummary", "ImageRow", "caption_images", "read_images"]


@dataclass
class CaptioningSummary:
    """The outcome of a run.

    Args:
        output: the file that was written.
        images: rows of it.
        captioned: rows with a caption.
        candidates: captions that were written for them, by all runs.
        resumed: candidates of earlier runs.
        truncated: candidates that the length limit cut.
        thinking_cut: candidates from which reasoning (`<think>...</think>`) was cut.
        distinct: share of candidates that are no repetition of another of their image; None with one an image.
        problems: {reason: images} without a caption.
        to_try_again: images that the same call tries again: those that could not be read or were refused.
        mean_of_all, mean_of_chosen: of the rewards.
        checkpoints: {metric: its checkpoint as it was given}.
        usage: of the captioner in this run.
        seconds: that this run took.
        already_done: whether the output was there, from the same images and settings.
    """

    output: Path
    images: int
    captioned: int = 0
    candidates: int = 0
    resumed: int = 0
    truncated: int = 0
    thinking_cut: int = 0
    distinct: float | None = None
    problems: dict[str, int] = field(default_factory=dict)
    to_try_again: int = 0
    mean_of_all: float | None = None
    mean_of_chosen: float | None = None
    checkpoints: dict[str, str | None] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    already_done: bool = False


def read_images(
    images: str | os.PathLike[str],
    *,
    image_column: str | None = None,
    references_column: str | None = None,
    image_root: str | os.PathLike[str] | None = None,
    split: str | None = None,
) -> list[ImageRow]:
    """The images of a folder and the folders in it, in the order of their names; one image file; or those of a file.

    Args:
        images: folder, image file, or a data file with a column of paths, see `open_source`.
        image_column, references_column, image_root, split: of a data file, as for `score_dataset`.

    Raises:
        DataError: nothing there, no image among the files, or a data file that holds the images themselves.
        ConfigError: an option of data files with a folder.
    """
    from PIL import Image

    path = Path(images)
    Image.init()
    endings = {ending for ending, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    if path.is_dir() or path.suffix.lower() in endings:
        given = {"image_column": image_column, "references_column": references_column, "image_root": image_root}
        for name, value in {**given, "split": split}.items():
            if value is not None:
                raise ConfigError(f"--{name.replace('_', '-')} ({name}=) is for a data file, and {path} is none")
        if not path.is_dir():
            if not path.is_file():
                raise DataError(f"there is no file {path}")
            return [_row(path)]
        files = sorted(each for each in path.rglob("*") if each.is_file() and not each.name.startswith("."))
        found = [_row(each) for each in files if each.suffix.lower() in endings]
        if not found:
            kinds = ", ".join(sorted({each.suffix or each.name for each in files})[:5]) or "no files"
            raise DataError(f"folder {path} holds no images (.jpg, .png, .webp, ...), but {kinds}")
        return found
    if not path.exists():
        raise DataError(f"there is no folder or file {path}")
    source = open_source(path, split=split, fields=[image_column, references_column])
    image = find_column("image", source.columns, image_column, option="--image-column", needed_by="captioning")
    assert image is not None
    known = find_column("references", source.columns, references_column, option="--references-column")
    root = find_root(source, image, image_root)
    rows = []
    for row in source.rows([name for name in (image, known) if name is not None]):
        if isinstance(row, BadRow):
            rows.append(ImageRow(root, problem=row.message))
            continue
        try:
            cell = one_image(row.get(image))
            references = read_references(row.get(known) if known else None)
        except InvalidSampleError as error:  # a fault of this row
            rows.append(ImageRow(root, problem=str(error)))
            continue
        if isinstance(cell, dict) and cell.get("bytes") is None:
            cell = cell.get("path")
        if cell is not None and not isinstance(cell, str):
            raise DataError(f"{path} holds the images themselves: save them as files, and name the folder instead")
        no_image = ImageRow(root, problem=f"the row has no image in column {image!r}")
        rows.append(no_image if cell is None else _row(Path(image_file(root / cell)), references))
    return rows


def _row(path: Path, references: tuple[str, ...] = ()) -> ImageRow:
    """The row of an image file. What is written are names in UTF-8, so another is a fault of its row."""
    try:
        os.path.abspath(path).encode()
    except UnicodeEncodeError:
        return ImageRow(path, problem=f"the name of the image file is not UTF-8: {str(path)!r}; rename it")
    return ImageRow(path, references)


def caption_images(
    images: Sequence[ImageRow],
    captioner: ServerCaptioner | LocalCaptioner,
    output: str | os.PathLike[str],
    *,
    metric: str | Sequence[str | MetricSource],
    source: str | os.PathLike[str] = "embedded",
    weights: Mapping[str, float] | None = None,
    n: int = 16,
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

    Candidates are in `<output>.partial` as soon as they are written, and are scored afterwards by `rerank_dataset`.
    After Ctrl-C or a kill, the same call asks only for what is missing. Images that got no caption, say because the
    file is broken or the server refused them, have a reason in `error`, and the same call tries them again.

    Args:
        images: see `read_images`.
        captioner: writes the candidates.
        output: `.jsonl` file.
        metric: by which captions are chosen, or several, such as `["vela", "beitscore=my-beitscore"]`; source,
            weights, batch_size, part_rows, devices and further options are those of `reward.scoring.rerank_dataset`.
        n: candidates an image.
        sampling: prompt, temperature, ...; None for the defaults.
        keep_candidates: leave `<output>.candidates.jsonl`: all candidates, best first, with their scores, as `capreward
            rerank` writes them, and `logprobs` if they were asked for.
        overwrite: replace a finished output. Candidates of an unfinished run with the same settings are kept: they may
            have been paid for.
        progress: show progress bars.

    Raises:
        ConfigError: a setting is out of range.
        DataError: no image could be captioned, or the metric needs references that are not there.
        OutputError: the output cannot be written, is there already, or belongs to another run.
        JudgeError: the server is down or refuses us; what came before is kept.
        ScoringInterrupted: Ctrl-C.

    Example:
        >>> import tempfile
        >>> from reward.decoding.captioners import LocalCaptioner
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
    output, sampling = Path(output), sampling or Sampling()
    check_output_name(output, ".jsonl")
    if n < 1:
        raise ConfigError(f"--n (n=) must be at least 1, got {n}")
    if sampling.temperature == 0 and n > 1:
        raise ConfigError("--temperature 0 writes the same caption n times: raise it, or take --n 1")
    for name, value, better in nearly_greedy(temperature=sampling.temperature, top_p=sampling.top_p) if n > 1 else ():
        option = name.replace("_", "-")
        warnings.warn(
            f"--{option} {value} ({name}=) leaves next to nothing but the likeliest token, so that the {n} captions of "
            f"an image are alike and there is nothing to choose from: give --{option} {better}",
            stacklevel=2,
        )
    metrics = Metrics.of(metric, source, weights=weights, **options)
    metrics.check_one_number()
    metrics.check_options(options)
    if metrics.knows_aspects:
        metrics.weigh(weights)
    if any(spec.needs_references for spec in metrics.specs) and not any(row.references for row in images):
        raise DataError(
            f"metric {metrics.name!r} needs references: give --images a data file that has them, or another metric"
        )
    drawing = {"capreward": reward.__version__, "task": "caption", "model": captioner.name, "n": n, **asdict(sampling)}
    if isinstance(captioner, LocalCaptioner):
        drawing["captioner"] = captioner.fingerprint
    if isinstance(captioner, ServerCaptioner) and captioner.extra_body:
        drawing["extra_body"] = captioner.extra_body
    names = [os.path.relpath(row.path, output.parent) if row.problem is None else None for row in images]
    content = json.dumps([[name, row.key, *row.references] for name, row in zip(names, images, strict=True)])
    scored_by = {**metrics.identity, "weights": weights and dict(weights), "options": options_of(options)}
    run = ResumableRun(
        output, {**drawing, **scored_by, "keep": keep_candidates, "images": _hash(content)}, overwrite=overwrite
    )
    done = run.finished(
        lambda record: record["summary"], "(other images, model, metric or settings); nothing was asked"
    )
    if done is not None:
        done["usage"] = Usage(**done["usage"])
        return CaptioningSummary(**{**done, "output": output, "already_done": True})

    start = time.perf_counter()
    output.parent.mkdir(parents=True, exist_ok=True)
    with _replies(run.partial, drawing, overwrite) as kept:
        pools = CandidatePools(images, n, kept)
        summary = CaptioningSummary(output, len(images), resumed=sum(map(len, pools.captions)), usage=captioner.usage)
        missing = pools.missing()
        if missing:
            kept.describe("captioner", captioner.check())
        scorer: Any = metric
        if devices is None:  # a bad source shows before captions are paid for
            scorer = metrics.load(**options)
        with progress_bar(progress, done=len(images) - len(missing), total=len(images), doing="writing") as advance:
            for row, captions in captioner.sample(iter(missing), sampling) if missing else ():
                pools.add(row, captions)
                advance(int(pools.complete(row)), int(isinstance(captions, str)))
        if not any(pools.captions):
            reason = next(iter(pools.problems.values()), "the model wrote nothing")
            raise DataError(f"no image could be captioned; the first: {reason}")
        candidates = output.with_name(output.name + ".candidates.jsonl")
        scores = output.with_name(output.name + ".scores.jsonl")
        write_atomically(candidates, lambda path: _write_lines(path, pools.rows(names)))
        settings: dict[str, Any] = {"weights": weights, "batch_size": batch_size, "part_rows": part_rows}
        if devices is not None:
            settings |= {"devices": devices, "source": source, **options}
        try:
            rerank_dataset(candidates, scorer, scores, **settings, overwrite=overwrite, progress=progress)
        except OtherRunError:  # of this very run, when it had fewer candidates or another metric
            rerank_dataset(candidates, scorer, scores, **settings, overwrite=True, progress=progress)
        write_atomically(output, lambda path: _write_lines(path, _rows(pools, names, scores, summary)))
        summary.seconds, summary.to_try_again = time.perf_counter() - start, len(pools.problems)
        if keep_candidates:
            write_atomically(candidates, lambda path: _write_lines(path, _kept(pools, scores)))
        else:
            candidates.unlink()
        for path in (scores, scores.with_name(scores.name + ".summary.json")):
            path.unlink(missing_ok=True)
        summary.checkpoints, summary.thinking_cut = metrics.checkpoints, pools.thinking_cut
        summary.distinct = distinct_share([[caption.text for caption in captions] for captions in pools.captions])
        facts = {"summary": {**asdict(summary), "output": str(output)}}
        run.finish(facts, unfinished=bool(pools.problems))
        if not pools.problems:  # else the same call goes on with them
            kept.delete()
    return summary


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _replies(path: Path, run: dict[str, Any], overwrite: bool) -> Kept:
    """The candidates so far. Those of the same settings are continued in any case."""
    try:
        return Kept(path, run, what="replies")
    except OtherRunError:
        if not overwrite:
            raise
        return Kept(path, run, overwrite=True, what="replies")


def _rows(
    pools: CandidatePools, names: Sequence[str | None], scores: Path, summary: CaptioningSummary
) -> Iterator[dict[str, Any]]:
    """Rows of the output, which are counted."""
    every, taken = list[float](), list[float]()
    ranked = _read_lines(scores)
    for row, path in enumerate(names):
        summary.candidates += len(pools.captions[row])
        summary.truncated += sum(caption.truncated for caption in pools.captions[row])
        caption, value, error = None, None, pools.problems.get(row)
        if pools.scored(row):
            line = next(ranked)
            rewards = line["rewards"] or []
            known = [reward for reward in rewards if reward is not None]
            error = line["error"] if not known else None
            if known:
                best = rank(rewards)[0]
                caption, value = line["candidates"][best], rewards[best]
                summary.captioned += 1
                every += known
                taken.append(value)
        if caption is None:
            reason = error or "no candidate has a reward"
            summary.problems[reason] = summary.problems.get(reason, 0) + 1
        yield {"image": path, "caption": caption, "reward": value, "error": error}
    if every:
        summary.mean_of_all, summary.mean_of_chosen = float(np.mean(every)), float(np.mean(taken))


def _kept(pools: CandidatePools, scores: Path) -> Iterator[dict[str, Any]]:
    """Rows of the candidates that are kept, best first."""
    ranked = _read_lines(scores)
    for row, captions in enumerate(pools.captions):
        if pools.scored(row):
            line = next(ranked)
            if line["order"] is not None and any(caption.logprob is not None for caption in captions):
                line["logprobs"] = [captions[place].logprob for place in line["order"]]
            yield line


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _write_lines(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json_line(row))
