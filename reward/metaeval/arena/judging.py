"""Has a judge decide battles of captions: resumable after a kill, no question asked twice, written as CapArena does."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reward.checkpoints.code import fingerprint_code
from reward.data.images import load_image
from reward.errors import DataError, ImageError
from reward.judges.pairwise import JudgePair, PairwiseJudge, Verdict
from reward.metaeval.arena.battles import VERDICTS, Battle, has_human
from reward.metaeval.benchmark_scores import prompt_name
from reward.scoring.kept import Kept
from reward.scoring.runs import ResumableRun, progress_bar, write_json
from reward.scoring.writers import check_output_name

CHUNK = 64  # battles that are asked for at a time: what a kill can cost
_JUDGEMENT = ("judge", "judge_reason", "judge_probabilities", "judge_orders", "judge_error")


@dataclass(frozen=True)
class JudgedBattles:
    """What became of battles.

    Args:
        battles: in their order, with the fields of the verdicts.
        resumed: battles that an earlier run judged.
        unanswered: battles that the judge did not answer; running the same again asks for these only.
        already_done: True when the output was there already, of the same battles and judge.
    """

    battles: list[Battle]
    resumed: int = 0
    unanswered: int = 0
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
) -> JudgedBattles:
    """Decides battles and writes them with the judge's verdicts, in their order, as a JSON list in CapArena's fields.

    Verdicts are saved as they come in `<output>.partial`. After Ctrl-C or a kill, the same call continues from there
    and asks no question again. Battles with the source "human" stay without a verdict, as in CapArena, because their
    reference is one of the two captions. Battles that the judge did not answer (a server that timed out) are in the
    output with `judge_error`, and the same call asks for them once more.

    Args:
        battles: see `read_battles` and `make_battles`; fields of an earlier judge are replaced.
        judge: decides the battles.
        output: a `.json` file.
        image_root: folder of the images.
        references: whether the judge sees the battle's `ref`, where it has one.
        overwrite: discard a finished output and an unfinished run.
        progress: show a progress bar.
    """
    output, root = Path(output), Path(image_root)
    check_output_name(output, ".json")
    results: list[Battle] = []
    for battle in battles:
        results.append({name: value for name, value in battle.items() if name not in _JUDGEMENT})
    to_judge = [index for index, battle in enumerate(results) if not has_human(battle)]
    if not to_judge:
        raise DataError("there is no battle to judge but those with the source 'human'")
    run = ResumableRun(output, _manifest(results, judge, root, references), overwrite=overwrite)
    if run.finished(lambda record: True, "(other battles, judge or settings); nothing was asked"):
        return JudgedBattles(json.loads(output.read_text(encoding="utf-8")), already_done=True)
    # A file of battles from elsewhere must not send any image of this machine to a server.
    for index in to_judge:
        image = results[index]["img"]
        if os.path.isabs(image) or os.path.normpath(image).split(os.sep)[0] == "..":
            raise DataError(f"image {image!r} leads out of the folder of the images, {root}; give a path inside it")

    with Kept(run.partial, run.manifest, overwrite=overwrite) as kept:
        judged: dict[int, dict[str, Any]] = dict(kept)  # {battle: fields of the verdict}
        unanswered: dict[int, dict[str, Any]] = {}
        resumed = len(judged)
        todo = [index for index in to_judge if index not in judged]
        with progress_bar(progress, done=resumed, total=len(to_judge)) as advance:
            for start in range(0, len(todo), CHUNK):
                chunk = todo[start : start + CHUNK]
                verdicts, failures = _judge_chunk(chunk, results, judge, root, references)
                kept.add(verdicts.items())
                judged |= verdicts
                unanswered |= failures
                errors = sum("judge_error" in fields for fields in verdicts.values())
                advance(len(chunk), errors + len(failures))
        # Only what was answered is kept, so that another run asks for the rest; the output says why it is missing.
        for index, fields in (judged | unanswered).items():
            results[index] |= fields
        write_json(output, results)
        if not unanswered:
            run.finish({"usage": asdict(judge.judge.usage)})
            kept.delete()
    return JudgedBattles(results, resumed, len(unanswered))


def _judge_chunk(
    chunk: Sequence[int], battles: Sequence[Battle], judge: PairwiseJudge, root: Path, references: bool
) -> tuple[dict[int, dict[str, Any]], dict[int, dict[str, Any]]]:
    """{battle: fields of its verdict}, and {battle: its `judge_error`} of those that the judge did not answer."""
    verdicts, failures = {}, {}
    pairs = {}
    for index in chunk:
        battle = battles[index]
        path = root / battle["img"]
        try:
            load_image(path)
        except ImageError as error:
            verdicts[index] = {"judge_error": str(error)}
            continue
        reference = [battle["ref"]] if references and "ref" in battle else []
        pairs[index] = JudgePair(battle["caption1"], battle["caption2"], path, reference)
    # A reply that cannot be read is an answer, too: asked again, the judge would say the same.
    for index, verdict in zip(pairs, judge.compare(list(pairs.values())), strict=True):
        if verdict.unanswered:
            failures[index] = _fields(verdict)
        else:
            verdicts[index] = _fields(verdict)
    return verdicts, failures


def _fields(verdict: Verdict) -> dict[str, Any]:
    """What a verdict adds to a battle: `judge` in CapArena's words, `judge_reason`, and the details.

    `judge_probabilities` are of caption 1, caption 2 and a tie. `judge_orders` has the verdict of each order, first
    as in the file, then with the captions exchanged; "Caption 1" is the file's caption 1 in both. Without a winner
    there is only `judge_error`.
    """
    if verdict.winner is None or verdict.probabilities is None:
        return {"judge_error": verdict.error}
    fields: dict[str, Any] = {"judge": VERDICTS[verdict.winner]}
    if verdict.reason:
        fields["judge_reason"] = verdict.reason
    fields["judge_probabilities"] = [round(probability, 6) for probability in verdict.probabilities]
    fields["judge_orders"] = [VERDICTS[choice] for choice in verdict.choices]
    return fields


def _manifest(battles: Sequence[Battle], judge: PairwiseJudge, root: Path, references: bool) -> dict[str, Any]:
    """What the verdicts depend on; see `ResumableRun`."""
    content = json.dumps(battles, sort_keys=True)
    return {
        "code": fingerprint_code(type(judge).__module__),
        "task": "arena",
        "battles": hashlib.sha256(content.encode()).hexdigest(),
        "judge": judge.judge.name,
        "prompt": prompt_name(judge),
        "reasons": judge.reasons,
        "both_orders": judge.both_orders,
        "max_new_tokens": judge.max_new_tokens,
        "references": references,
        "image_root": os.path.abspath(root),
    }
