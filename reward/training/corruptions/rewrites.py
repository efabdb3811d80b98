"""Rewrites by a language model that puts errors of one kind into captions; its answers are stored on disk."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reward.data.images import image_key
from reward.data.samples import CaptionSample, is_blank
from reward.data.words import words_of
from reward.data.written_captions import caption_in
from reward.errors import ConfigError, JudgeError
from reward.scoring.kept import Kept
from reward.scoring.runs import progress_bar
from reward.training.corruptions.rewrite_prompts import RewritePrompts, load_prompts
from reward.training.corruptions.sampler import Negative, comparable

if TYPE_CHECKING:
    from reward.data.samples import ImageLike
    from reward.judges import Judge


_CALL = 32  # questions a call of the judge: what an interruption can lose

_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_QUOTED = re.compile(r"\A[\"“](.*)[\"”]\Z", re.DOTALL)
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_SLACK = 20  # characters by which a short caption may grow or shrink
_LEAST_KEPT = 0.3  # share of the caption's words that must be left


class Rewrites(NamedTuple):
    """The rewrites of N captions.

    Attributes:
        negatives: those of each caption.
        counts: per category how many captions gave a rewrite (`"kept"`), how many were dropped for which reason (see
            `read_answer`), and how many have no answer (`"failed"`).
    """

    negatives: list[list[Negative]]
    counts: dict[str, Counter[str]]


def rewrite_captions(
    captions: Sequence[str],
    judge: Judge,
    answers_file: str | os.PathLike[str],
    *,
    categories: Collection[str] | None = None,
    prompts: RewritePrompts | None = None,
    images: Sequence[ImageLike | None] | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Rewrites:
    """Has a language model rewrite captions, once for each category of error.

    Every answer is kept on disk at once. An interrupted run therefore continues where it stopped, and
    captions or categories can be added later. The file holds the answers as the model wrote them; `read_answer`
    checks them in every run. Equal captions are sent once. The judge decides how many requests run at a time. An answer
    may be about twice as long as the longest caption of a call needs.

    Args:
        captions: N true captions.
        judge: what answers: a `LocalJudge`, a `ServerJudge`, or anything with their `generate`.
        answers_file: SQLite file of the answers; belongs to one judge and one set of prompts.
        categories: names of categories in the prompts; None takes all.
        prompts: None takes the default, see `reward.training.corruptions.rewrite_prompts.load_prompts`.
        images: the image of each caption, which the judge then sees; None shows it the captions alone.
        overwrite: start again if the file belongs to other prompts or another judge.
        progress: whether to show a bar on stderr.

    Returns:
        N lists of negatives, and counts of what was kept and dropped. A question that the judge failed on is counted,
        warned of, and asked again by the next run.

    Source: BEiTScore, section 3.1; the texts of the prompts are ours.

    Example:
        >>> import tempfile
        >>> from reward.judges import ScriptedJudge
        >>> judge = ScriptedJudge(lambda question: '"Three stars."')
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rewrites = rewrite_captions(["Two stars."], judge, folder + "/answers.sqlite", categories=["count"])
        >>> rewrites.negatives[0]
        [Negative(text='Three stars.', category='count')]
    """
    prompts = prompts or load_prompts()
    categories = list(dict.fromkeys(prompts.changes if categories is None else categories))
    unknown = [name for name in categories if name not in prompts.changes]
    if unknown:
        raise ConfigError(f"unknown categories {', '.join(unknown)}; known: {', '.join(prompts.changes)}")
    if images is None:
        images = [None] * len(captions)
    # Making a sample of each refuses a caption that says nothing.
    keys = [_key(CaptionSample(text).candidate, image) for text, image in zip(captions, images, strict=True)]
    run = {"what": "rewrites of captions", "judge": judge.name, "prompts": prompts.digest}
    reasons: list[str] = []
    with Kept(Path(answers_file), run, overwrite=overwrite, what="answers") as store:
        answers = {(line["key"], line["category"]): line for line in store}
        requests: dict[tuple[str, str], _Request] = {}
        for category in categories:  # requests with a common beginning follow each other
            for key, caption, image in zip(keys, captions, images, strict=True):
                if (key, category) not in answers:
                    requests[key, category] = _Request(key, category, caption, image)
        total = len(categories) * len(set(keys))
        with progress_bar(progress, done=total - len(requests), total=total, doing="rewriting") as advance:
            for start in range(0, len(requests), _CALL):
                batch = list(requests.values())[start : start + _CALL]
                lines, failures = _ask(batch, judge, prompts)
                store.add(lines)
                for line in lines:
                    answers[line["key"], line["category"]] = line
                reasons += failures.values()
                advance(len(batch), len(failures))
    if reasons:
        fix = "rewrites have no answer, and are asked for again by the next run; the first"
        warnings.warn(f"{len(reasons)} {fix}: {reasons[0]}", stacklevel=2)
    counts: dict[str, Counter[str]] = {category: Counter() for category in categories}
    negatives: list[list[Negative]] = []
    for caption, key in zip(captions, keys, strict=True):
        negatives.append([])
        for category in categories:
            answer = answers.get((key, category))
            if answer is None:
                counts[category]["failed"] += 1
                continue
            text, reason = read_answer(caption, answer["answer"], cut=answer["cut"])
            counts[category][reason or "kept"] += 1
            if text is not None:
                negatives[-1].append(Negative(text, category))
    return Rewrites(negatives, counts)


class _Request(NamedTuple):
    key: str
    category: str
    caption: str
    image: ImageLike | None


def _ask(
    requests: Sequence[_Request], judge: Judge, prompts: RewritePrompts
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The answers as lines to keep, and {index: reason} of the requests without one."""
    from reward.judges import Question
    from reward.judges.base import ask

    questions = []
    for request in requests:
        text = prompts.fill(request.category, request.caption)
        questions.append(Question(text, request.image, system=prompts.system))
    limit = _length_limit([request.caption for request in requests])
    answers, failures = ask(judge.generate, questions, max_new_tokens=limit)
    if len(failures) == len(requests):  # the next call would fail as well
        raise JudgeError.of(failures, answers)
    lines = []
    for index, request in enumerate(requests):
        if index not in failures:
            answer = answers[index]
            line = {"key": request.key, "category": request.category, "answer": answer.text, "cut": answer.truncated}
            lines.append(line)
    return lines, failures


def _key(caption: str, image: ImageLike | None) -> str:
    text = caption if image is None else f"{caption}\0{image_key(image)}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _length_limit(captions: Sequence[str]) -> int:
    """Tokens for an answer: one for two bytes, where English has one for four and Chinese one or two for three."""
    return 64 + max(len(caption.encode()) for caption in captions) // 2


def read_answer(caption: str, answer: str, *, cut: bool = False) -> tuple[str | None, str]:
    """Reads the rewritten caption out of an answer.

    Thoughts between `<think>` tags, code fences, and JSON or quotes around the whole are removed. An answer is dropped
    for the first of these reasons that applies:
    - `cut`: the length limit cut the answer;
    - `empty`: the answer is empty;
    - `unchanged`: it equals the caption except for case, white space and quotes, so the model changed nothing;
    - `lines`: it has more lines than the caption, as an answer with an explanation has;
    - `length`: it is less than half or more than twice as long, with a tolerance of 20 characters;
    - `unlike`: it has less than 30 % of the caption's words, as a refusal has. Captions of one word are exempt.

    Args:
        caption: the caption that was to be rewritten.
        answer: what the model wrote.
        cut: whether the length limit cut it.

    Returns:
        (text, "") or (None, reason).

    Example:
        >>> read_answer("Two red stars.", '"Three red stars."')
        ('Three red stars.', '')
        >>> read_answer("Two red stars.", "two red stars.")
        (None, 'unchanged')
    """
    text = _unwrapped(answer)
    # In this order: an answer that was cut has other faults because of that.
    if cut:
        return None, "cut"
    if is_blank(text):
        return None, "empty"
    if comparable(text) == comparable(caption):
        return None, "unchanged"
    if len(text.strip().splitlines()) > len(caption.strip().splitlines()):
        return None, "lines"
    if not len(caption) / 2 - _SLACK <= len(text) <= 2 * len(caption) + _SLACK:
        return None, "length"
    before, after = Counter(words_of(caption)), Counter(words_of(text))
    if before.total() > 1 and (before & after).total() < _LEAST_KEPT * before.total():
        return None, "unlike"
    return text, ""


def _unwrapped(answer: str) -> str:
    text = caption_in(answer).strip()
    fenced = _FENCE.match(text)
    if fenced:
        text = fenced.group(1).strip()
    if text.startswith('"'):
        try:
            value = json.loads(text, strict=False)
        except ValueError:  # quotes, but no JSON: inner quotes left as they are, for example
            value = None
        if isinstance(value, str):
            return _without_lone_surrogates(value).strip()
    inner = _QUOTED.match(text)
    if inner:
        text = inner.group(1).strip()
    # The request showed some characters as escapes, and a model that forgets the quotes may still keep those.
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).replace('\\"', '"')
    return _without_lone_surrogates(text)


def _without_lone_surrogates(text: str) -> str:
    """JSON can hold half an emoji, which no tokenizer takes; such an answer counts as empty."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return text
