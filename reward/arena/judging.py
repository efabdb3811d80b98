"""Has a judge decide battles of captions: resumable after a kill, nothing asked twice, CapArena's JSON as output."""

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
from reward.arena.pairwise import JudgePair, PairwiseJudge
from reward.arena.verdicts import PositionBias, measure_position_bias
from reward.battles import Battle, Record, choices_of, tally
from reward.errors import DataError, ImageError, OutputError
from reward.images import load_image
from reward.judges.base import Usage
from reward.scoring.dataset import ScoringInterrupted
from reward.scoring.journal import Journal
from reward.scoring.progress import progress_bar
from reward.scoring.writers import check_undamaged, output_facts, refuse_address, write_atomically

__all__ = ["BattleSummary", "judge_battles", "write_json"]

FIRST_CHUNK, LARGEST_CHUNK = 8, 256  # battles
CHUNK_SECONDS = 5.0  # chunks grow while they take less, so that a kill loses little work of a slow judge


@dataclass(frozen=True)
class BattleSummary:
    """What came of the battles of a file.

    Args:
        output: the file that was written.
        records: its entries.
        human: battles with the source "human", which are not judged.
        judged: battles with a verdict.
        unreadable: battles whose answer could not be read or whose image is broken.
        unanswered: battles that the judge did not answer; running the same again asks for these only.
        examples: {"unreadable" or "unanswered": the first reason}.
        resumed: battles that an earlier run had judged.
        seconds: time this run spent judging.
        sources: {source: {"wins", "ties", "losses", "unjudged"}}.
        bias: how far the place of a caption decided.
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

    Verdicts are saved as they come in `<output>.partial`: after Ctrl-C or a kill the same call goes on there and asks
    nothing again. Battles with the source "human" stay without a verdict, as in CapArena: their reference is one of
    the two captions. Battles that the judge did not answer (a server that timed out) are in the output with
    `judge_error`, and the same call asks for them once more.

    Args:
        battles: see `read_battles` and `make_battles`.
        judge: decides.
        output: a `.json` file.
        image_root: folder of the images.
        references: whether the judge sees the battle's `ref`, where it has one.
        overwrite: discard a finished output and an unfinished run.
        progress: show a progress bar.

    Raises:
        DataError: no battle to judge, or images are missing.
        OutputError: the output cannot be written, is there already, or belongs to another run.
        JudgeError: the judge itself fails; what was judged before is saved.
        ScoringInterrupted: Ctrl-C.
    """
    output, root = Path(output), Path(image_root)
    _check_output(output)
    asked = [index for index, battle in enumerate(battles) if not battle.has_human]
    if not asked:
        raise DataError("there is no battle to judge" + (" but those with the source 'human'" if battles else ""))
    manifest = _manifest(battles, judge, root, references)
    journal_path = output.with_name(output.name + ".partial")
    summary_path = output.with_name(output.name + ".summary.json")
    if output.exists() and not journal_path.exists() and not overwrite:
        return _finished(output, summary_path, manifest)
    _check_images([battles[index] for index in asked], root)

    with Journal(journal_path, manifest, overwrite=overwrite) as journal:
        done: dict[int, dict[str, Any]] = {}
        unanswered: set[int] = set()
        _take(journal.results(), done, unanswered)
        resumed, start = len(done) - len(unanswered), time.perf_counter()
        todo = [index for index in asked if index not in done or index in unanswered]
        try:
            with progress_bar(progress, done=resumed, total=len(asked)) as advance:
                for lines in _judged(todo, battles, judge, root, references):
                    journal.append(lines)
                    _take(lines, done, unanswered)
                    advance(len(lines), sum("judge_error" in fields for _, fields, _ in lines))
        except KeyboardInterrupt:
            raise ScoringInterrupted(journal.rows, journal.path) from None
        records = [{**battle.to_json(), **done.get(index, {})} for index, battle in enumerate(battles)]
        seconds = time.perf_counter() - start
        summary = _summarise(output, records, resumed, seconds, unanswered, judge.judge.usage)
        write_json(output, records)
        if not unanswered:
            bias, usage = summary.bias.to_json(), asdict(summary.usage)
            facts = {"sources": summary.sources, "position_bias": bias, "usage": usage, "output": output_facts(output)}
            write_json(summary_path, {"run": manifest, **facts})
            journal.delete()
    return summary


def _judged(todo: Sequence[int], battles: Sequence[Battle], judge: PairwiseJudge, root: Path, references: bool) -> Any:
    """Journal lines [index, fields, unanswered], chunk by chunk."""
    position, limit = 0, FIRST_CHUNK
    while position < len(todo):
        chunk = todo[position : position + limit]
        position, start = position + len(chunk), time.perf_counter()
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
            shown = [battle.ref] if references and battle.ref is not None else []
            pairs[index] = JudgePair(battle.caption1, battle.caption2, path, shown)
        for index, verdict in zip(pairs, judge.compare(list(pairs.values())), strict=True):
            lines[index] = [index, verdict.to_json(), verdict.unanswered]
        yield [lines[index] for index in chunk]
        if time.perf_counter() - start < CHUNK_SECONDS:
            limit = min(2 * limit, LARGEST_CHUNK)


def _take(lines: Any, done: dict[int, dict[str, Any]], unanswered: set[int]) -> None:
    """A later line of a battle takes the place of an earlier one."""
    for index, fields, without_answer in lines:
        done[index] = fields
        (unanswered.add if without_answer else unanswered.discard)(index)


def _manifest(battles: Sequence[Battle], judge: PairwiseJudge, root: Path, references: bool) -> dict[str, Any]:
    """What the verdicts depend on; a run is continued only if all of it is the same."""
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


def _check_output(output: Path) -> None:
    refuse_address(output)
    if output.suffix.lower() != ".json":
        raise OutputError(f"output {output} must end in .json")
    if output.is_dir():
        raise OutputError(f"output {output} is a folder; give a file name in it")


def _check_images(battles: Sequence[Battle], root: Path) -> None:
    images = dict.fromkeys(battle.img for battle in battles)
    for image in images:  # a file of battles from elsewhere must not send any image of this machine to a server
        if os.path.isabs(image) or os.path.normpath(image).split(os.sep)[0] == "..":
            raise DataError(f"image {image!r} leads out of the folder of the images, {root}; give a path inside it")
    missing = [image for image in images if not (root / image).is_file()]
    if missing:
        examples = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise DataError(f"{len(missing)} of {len(images)} images are not in the folder {root}: {examples}")


def _finished(output: Path, summary_path: Path, manifest: dict[str, Any]) -> BattleSummary:
    """The summary of the output that is there, if it is of this very run."""
    try:
        record = json.loads(summary_path.read_text(encoding="utf-8"))
        same = record["run"] == manifest
        facts = {"bytes": int(record["output"]["bytes"]), "sha256": str(record["output"]["sha256"])}
    except (OSError, ValueError, KeyError, TypeError):  # absent, damaged, or another tool's file
        same = False
    if not same:
        raise OutputError(
            f"{output} exists already and is not of this run (other battles, judge or settings); nothing was asked. "
            "Choose another output, or replace it with --overwrite (overwrite=True)."
        )
    check_undamaged(output, facts)
    records = json.loads(output.read_text(encoding="utf-8"))
    return _summarise(output, records, len(records), 0.0, set(), Usage(), already_done=True)


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


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file, complete or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)
