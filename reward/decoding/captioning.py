"""Captions images by a model: candidates are stored as they come, then scored, and the best one is chosen."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from reward.data.samples import check_encodable
from reward.data.written_captions import caption_in
from reward.decoding.captioners import LocalCaptioner, Sampling, ServerCaptioner
from reward.decoding.endings import nearly_greedy
from reward.decoding.photos import ImageRow
from reward.decoding.selection import distinct_share, rank
from reward.errors import ConfigError, DataError, InvalidSampleError
from reward.judges import Usage
from reward.judges.chat import Sampled
from reward.registry import MetricSource
from reward.scoring.dataset import rerank_dataset
from reward.scoring.kept import Kept
from reward.scoring.progress import progress_bar
from reward.scoring.runs import OtherRunError, ResumableRun
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

    Candidates are in `<output>.partial` as they come, without their reasoning (`caption_in`), and are scored
    afterwards by `rerank_dataset`. After Ctrl-C or a kill, the same call asks only for what is missing. Images that got
    no caption, or fewer candidates than `n`, say because the file is broken or the server refused them, have a reason
    in `error`, and the same call tries them again.

    Args:
        images: see `read_images`.
        captioner: writes the candidates.
        output: `.jsonl` file.
        metric: by which captions are chosen, or several, such as `["vela", "beitscore=my-beitscore"]`; source,
            weights, batch_size, part_rows, devices and further options are those of `rerank_dataset`.
        n: candidates an image.
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
    from datasets import Dataset  # on use: a large package

    start, output, sampling = time.perf_counter(), Path(output), sampling or Sampling()
    check_output_name(output, ".jsonl")
    _check_choice(n, sampling)
    metrics = Metrics.of(metric, source, weights=weights, **options)
    metrics.check_one_number()
    has_references = any(row.references for row in images)
    if any(spec.needs_references for spec in metrics.specs) and not has_references:
        raise DataError(
            f"metric {metrics.name!r} needs references: give --images a data file that has them, or another metric"
        )
    drawing = {"task": "caption", "model": captioner.name, "n": n, **asdict(sampling)}
    if isinstance(captioner, LocalCaptioner):
        drawing["captioner"] = captioner.fingerprint
    elif getattr(captioner, "extra_body", None):
        drawing["extra_body"] = captioner.extra_body
    names = [os.path.relpath(row.path, output.parent) if row.problem is None else None for row in images]
    content = json.dumps([[name, row.key, *row.references] for name, row in zip(names, images, strict=True)])
    facts = {"keep": keep_candidates, "images": hashlib.sha256(content.encode()).hexdigest()}
    run = ResumableRun(output, {**drawing, **metrics.identity, **facts}, overwrite=overwrite)
    done = run.finished(
        lambda record: record["summary"], "(other images, model, metric or settings); nothing was asked"
    )
    if done is not None:
        return CaptioningSummary(**{**done, "usage": Usage(**done["usage"]), "output": output, "already_done": True})

    with _replies(run.partial, drawing, overwrite) as kept:
        stored: dict[str, list[Sampled]] = {}
        for key, captions in kept:
            stored.setdefault(key, []).extend(Sampled(*each) for each in captions)
        keys, problems = [*_keys(images)], {row: each.problem for row, each in enumerate(images) if each.problem}
        written = {row: stored[key] for row, key in enumerate(keys) if key in stored}
        have = {row: len(captions) for row, captions in written.items()}
        summary = CaptioningSummary(output, len(images), resumed=sum(have.values()), usage=captioner.usage)
        missing = [(row, each.path) for row, each in enumerate(images) if row not in problems and have.get(row, 0) < n]
        if missing:
            kept.describe("captioner", captioner.check())
        scorer: Any = metric if devices is not None else metrics.load()  # before captions are paid for
        with progress_bar(progress, done=len(images) - len(missing), total=len(images), doing="writing") as advance:
            for row, captions in captioner.sample(missing, n, sampling, have) if missing else ():
                try:
                    shown = _shown(captions)
                    kept.add([[keys[row], [[each.text, each.truncated] for each in shown]]])
                    written.setdefault(row, []).extend(shown)
                except InvalidSampleError as error:
                    problems[row] = str(error)
                advance(int(len(written.get(row, ())) >= n), int(row in problems))
        if not written:
            reason = next(iter(problems.values()), "the model wrote nothing")
            raise DataError(f"no image could be captioned; the first: {reason}")
        candidates = output.with_name(f"{output.name}.candidates.jsonl")
        settings: dict[str, Any] = {"weights": weights, "batch_size": batch_size, "part_rows": part_rows}
        settings |= {} if devices is None else {"devices": devices, "source": source, **options}
        settings |= {"image_root": output.parent, "progress": progress}
        rows = Dataset.from_list(
            [
                {"image": names[row], "candidates": [each.text for each in written[row]]}
                | ({"references": list(images[row].references)} if has_references else {})
                for row in sorted(written)
            ]
        )
        try:
            rerank_dataset(rows, scorer, candidates, **settings, overwrite=overwrite)
        except OtherRunError:  # of this very run, when it had fewer candidates or another metric
            rerank_dataset(rows, scorer, candidates, **settings, overwrite=True)
        write_atomically(output, lambda path: _write(path, written, problems, names, candidates, summary))
        candidates.with_name(candidates.name + ".summary.json").unlink(missing_ok=True)
        if not keep_candidates:
            candidates.unlink()
        summary.checkpoints = metrics.checkpoints
        summary.seconds, summary.to_try_again = time.perf_counter() - start, len(problems)
        summary.distinct = distinct_share([[each.text for each in captions] for captions in written.values()])
        run.finish({"summary": {**asdict(summary), "output": str(output)}}, unfinished=bool(problems))
        if not problems:  # else the same call goes on with them
            kept.delete()
    return summary


def _keys(images: Sequence[ImageRow]) -> Iterator[str]:
    """A key for each row: an image that comes twice is captioned twice."""
    seen = Counter[str]()
    for row in images:
        seen[row.key] += 1
        yield f"{row.key} {seen[row.key]}"


def _shown(captions: list[Sampled] | str) -> list[Sampled]:
    """The captions without reasoning; raises the reason why there are none, or why no file can hold them."""
    if isinstance(captions, str):
        raise InvalidSampleError(captions)
    shown = [Sampled(caption_in(each.text), each.truncated) for each in captions]
    for each in shown:
        check_encodable(each.text, "a caption")
    return shown


def _check_choice(n: int, sampling: Sampling) -> None:
    """Refuses settings that leave nothing to choose from, and warns of those that leave little."""
    if n < 1:
        raise ConfigError(f"--n (n=) must be at least 1, got {n}")
    if n == 1:
        return
    if sampling.temperature == 0:
        raise ConfigError("--temperature 0 writes the same caption n times: raise it, or take --n 1")
    for name, value, better in nearly_greedy(temperature=sampling.temperature, top_p=sampling.top_p):
        option = name.replace("_", "-")
        warnings.warn(
            f"--{option} {value} ({name}=) leaves next to nothing but the likeliest token, so that the {n} captions of "
            f"an image are alike and there is nothing to choose from: give --{option} {better}",
            stacklevel=3,
        )


def _replies(path: Path, run: dict[str, Any], overwrite: bool) -> Kept:
    """The candidates so far. Those of the same settings are continued in any case."""
    try:
        return Kept(path, run, what="replies")
    except OtherRunError:
        if not overwrite:
            raise
        return Kept(path, run, overwrite=True, what="replies")


def _write(
    path: Path,
    written: Mapping[int, list[Sampled]],
    problems: Mapping[int, str],
    names: Sequence[str | None],
    candidates: Path,
    summary: CaptioningSummary,
) -> None:
    """Writes the rows of the output, and counts them."""
    every, taken = list[float](), list[float]()
    with candidates.open(encoding="utf-8") as lines, path.open("w", encoding="utf-8") as file:
        for row, name in enumerate(names):
            summary.candidates += len(written.get(row, ()))
            summary.truncated += sum(caption.truncated for caption in written.get(row, ()))
            line: dict[str, Any] = json.loads(next(lines)) if row in written else {"error": problems.get(row)}
            known = [reward for reward in line.get("rewards") or [] if reward is not None]
            caption, value, error = None, None, line["error"]
            if known:
                best = rank(line["rewards"])[0]
                caption, value, error = line["candidates"][best], line["rewards"][best], problems.get(row)
                summary.captioned += 1
                every += known
                taken.append(value)
            else:
                reason = error or "no candidate has a reward"
                summary.problems[reason] = summary.problems.get(reason, 0) + 1
            file.write(json_line({"image": name, "caption": caption, "reward": value, "error": error}))
    if every:
        summary.mean_of_all, summary.mean_of_chosen = fmean(every), fmean(taken)
