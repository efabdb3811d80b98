"""Has a judge decide battles of captions: resumable after a kill, no question asked twice, written as CapArena does."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import reward
from reward.errors import DataError, ImageError
from reward.images import load_image
from reward.judges.base import Usage
from reward.judges.opinions import PositionBias, Verdict, measure_position_bias
from reward.judges.pairwise import JudgePair, PairwiseJudge
from reward.metaeval.arena.battles import VERDICTS, Battle, Record, choices_of, tally
from reward.scoring.kept import Kept
from reward.scoring.progress import progress_bar
from reward.scoring.runs import ResumableRun, write_json
from reward.scoring.writers import check_output_name

__all__ = ["BattleSummary", "judge_battles"]

CHUNK = 64  # battles that are asked for at a time: what a kill can cost


@dataclass(frozen=True)
class BattleSummary:
    """The outcome of the battles of a file.

    Args:
        output: the file that was written.
        records: its entries.
        human: battles with the source "human", which are not judged.
        judged: battles with a verdict.
        unreadable: battles whose answer could not be read or whose image is broken.
        unanswered: battles that the judge did not answer; running the same again asks for these only.
        examples: {"unreadable" or "unanswered": the first reason}.
        resumed: battles that an earlier run judged.
        seconds: time this run spent judging.
        sources: {source: {"wins", "ties", "losses", "unjudged"}}.
        bias: how much the position of a caption decided.
        usage: what the judge did for this run.
        already_done: True when the output was there already, of the same battles and judge.
    """

    output: Path
    records: list[dict[str, Any]]
    human: int
    judged: int
    unreadable: int
    unanswered: int
    examples: dict[str, str]
    resumed: int
    seconds: float
    sources: dict[str, dict[str, int]]
    bias: PositionBias
    usage: Usage
    already_done: bool = False


def judge_battles(
    battles: Sequence[Battle],
    judge: PairwiseJudge,
    output: str | os.PathLike[str],
    *,
    image_root: str | os.PathLike[str],
    references: bool = True,
    overwrite: bool = False,
    progress: bool = False,
) -> BattleSummary:
    """Decides battles and writes them with the judge's verdicts, in their order, as a JSON list in CapArena's fields.

    Verdicts are saved as they come in `<output>.partial`. After Ctrl-C or a kill, the same call continues from there
    and asks no question again. Battles with the source "human" stay without a verdict, as in CapArena, because their
    reference is one of the two captions. Battles that the judge did not answer (a server that timed out) are in the
    output with `judge_error`, and the same call asks for them once more.

    Args:
        battles: see `read_battles` and `make_battles`.
        judge: decides the battles.
        output: a `.json` file.
        image_root: folder of the images.
        references: whether the judge sees the battle's `ref`, where it has one.
        overwrite: discard a finished output and an unfinished run.
        progress: show a progress bar.

    Raises:
        DataError: no battle to judge, or images are missing.
        OutputError: the output cannot be written, is there already, or belongs to another run.
        JudgeError: the judge itself fails; the verdicts so far are saved.
        ScoringInterrupted: Ctrl-C.
    """
    output, root = Path(output), Path(image_root)
    check_output_name(output, ".json")
    to_judge = [index for index, battle in enumerate(battles) if not battle.has_human]
    if not to_judge:
        raise DataError("there is no battle to judge" + (" but those with the source 'human'" if battles else ""))
    run = ResumableRun(output, _manifest(battles, judge, root, references), overwrite=overwrite)
    if run.finished(lambda record: True, "(other battles, judge or settings); nothing was asked"):
        records = json.loads(output.read_text(encoding="utf-8"))
        return _summarise(output, records, len(records), 0.0, set(), Usage(), already_done=True)
    _check_images([battles[index] for index in to_judge], root)

    with Kept(run.partial, run.manifest, overwrite=overwrite) as kept:
        done: dict[int, dict[str, Any]] = {}
        unanswered: set[int] = set()
        _take(kept, done, unanswered)
        resumed, start = len(done) - len(unanswered), time.perf_counter()
        todo = [index for index in to_judge if index not in done or index in unanswered]
        with progress_bar(progress, done=resumed, total=len(to_judge)) as advance:
            for lines in _judged(todo, battles, judge, root, references):
                kept.add(lines)
                _take(lines, done, unanswered)
                advance(len(lines), sum("judge_error" in fields for _, fields, _ in lines))
        records = [{**battle.to_json(), **done.get(index, {})} for index, battle in enumerate(battles)]
        seconds = time.perf_counter() - start
        summary = _summarise(output, records, resumed, seconds, unanswered, judge.judge.usage)
        write_json(output, records)
        if not unanswered:
            bias, usage = summary.bias.to_json(), asdict(summary.usage)
            run.finish({"sources": summary.sources, "position_bias": bias, "usage": usage})
            kept.delete()
    return summary


def _judged(todo: Sequence[int], battles: Sequence[Battle], judge: PairwiseJudge, root: Path, references: bool) -> Any:
    """Verdicts [index, fields, unanswered], chunk by chunk."""
    for start in range(0, len(todo), CHUNK):
        chunk = todo[start : start + CHUNK]
        lines: dict[int, list[Any]] = {}
        pairs = {}
        for index in chunk:
            battle = battles[index]
            path = root / battle.img
            try:
                load_image(path)
            except ImageError as error:
                lines[index] = [index, {"judge_error": str(error)}, False]
                continue
            references_shown = [battle.ref] if references and battle.ref is not None else []
            pairs[index] = JudgePair(battle.caption1, battle.caption2, path, references_shown)
        for index, verdict in zip(pairs, judge.compare(list(pairs.values())), strict=True):
            lines[index] = [index, judged_fields(verdict), verdict.unanswered]
        yield [lines[index] for index in chunk]


def judged_fields(verdict: Verdict) -> dict[str, Any]:
    """The fields that a verdict adds to a battle: `judge` in CapArena's words, `judge_reason`, and the details.

    `judge_probabilities` are of caption 1, caption 2 and a tie. `judge_orders` has the verdict of each order, first
    as in the file, then with the captions exchanged; "Caption 1" is the file's caption 1 in both. Without a winner
    there is only `judge_error`.
    """
    if verdict.winner is None or verdict.probabilities is None:
        return {"judge_error": verdict.error}
    return {
        "judge": VERDICTS[verdict.winner],
        **({"judge_reason": verdict.reason} if verdict.reason else {}),
        "judge_probabilities": [round(value, 6) for value in verdict.probabilities],
        "judge_orders": [VERDICTS[choice] for choice in verdict.choices],
    }


def _take(lines: Any, done: dict[int, dict[str, Any]], unanswered: set[int]) -> None:
    """Reads verdicts that were kept; a later one of a battle replaces an earlier one."""
    for index, fields, without_answer in lines:
        done[index] = fields
        (unanswered.add if without_answer else unanswered.discard)(index)


def _manifest(battles: Sequence[Battle], judge: PairwiseJudge, root: Path, references: bool) -> dict[str, Any]:
    """What the verdicts depend on; see `ResumableRun`."""
    content = json.dumps([battle.to_json() for battle in battles], sort_keys=True)
    prompt = json.dumps(judge.prompt.to_json(), sort_keys=True)
    return {
        "capreward": reward.__version__,
        "task": "battles",
        "battles": hashlib.sha256(content.encode()).hexdigest(),
        "judge": judge.judge.name,
        "prompt": f"{judge.prompt.version} {hashlib.sha256(prompt.encode()).hexdigest()[:16]}",
        "reasons": judge.reasons,
        "both_orders": judge.both_orders,
        "max_new_tokens": judge.max_new_tokens,
        "references": references,
        "image_root": os.path.abspath(root),
    }


def _check_images(battles: Sequence[Battle], root: Path) -> None:
    images = dict.fromkeys(battle.img for battle in battles)
    for image in images:  # a file of battles from elsewhere must not send any image of this machine to a server
        if os.path.isabs(image) or os.path.normpath(image).split(os.sep)[0] == "..":
            raise DataError(f"image {image!r} leads out of the folder of the images, {root}; give a path inside it")
    missing = [image for image in images if not (root / image).is_file()]
    if missing:
        examples = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise DataError(f"{len(missing)} of {len(images)} images are not in the folder {root}: {examples}")


def _summarise(
    output: Path,
    records: list[dict[str, Any]],
    resumed: int,
    seconds: float,
    unanswered: set[int],
    usage: Usage,
    *,
    already_done: bool = False,
) -> BattleSummary:
    failed = {index: entry["judge_error"] for index, entry in enumerate(records) if "judge_error" in entry}
    examples = {"unanswered" if index in unanswered else "unreadable": text for index, text in reversed(failed.items())}
    judged: list[Record] = [entry for entry in records if "judge" in entry]
    return BattleSummary(
        output=output,
        records=records,
        human=len(records) - len(judged) - len(failed),
        judged=len(judged),
        unreadable=len(failed) - len(unanswered),
        unanswered=len(unanswered),
        examples=examples,
        resumed=resumed,
        seconds=seconds,
        sources=tally(records),
        bias=measure_position_bias(map(choices_of, judged)),
        usage=usage,
        already_done=already_done,
    )
