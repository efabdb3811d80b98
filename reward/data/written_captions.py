"""The caption in what a model wrote: without its reasoning, out of its answer, without the marks that end its turn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

# All marks begin with one of these: a caption without them needs no `caption_in`.
FIRST_CHARACTERS = frozenset("<[◁\\")
# All marks of reasoning end with one of these.
LAST_CHARACTERS_OF_REASONING = frozenset(">]▷")


class _Marks(NamedTuple):
    """The table: {mark that opens: mark that closes}, the final marks, and patterns that find marks."""

    reasoning: dict[str, str]
    reasoning_pattern: re.Pattern[str]
    final: frozenset[str]
    answers: dict[str, str]
    answer_pattern: re.Pattern[str]
    ends_reversed: re.Pattern[str]


def caption_in(text: str) -> str:
    """The caption in what a model wrote.

    Reasoning, such as `<think>...</think>`, is left out. Where the chat template has opened it already, all before the
    mark that closes it is reasoning; where it is not closed, the model has written no caption. Of what is left, the
    caption is what stands in the last answer, such as `<answer>...</answer>` or `\\boxed{...}`, if there is one. Marks
    at its end by which models end a turn, such as `<|im_end|>`, are left out. `written_captions.yaml` has all marks.

    Args:
        text: what a model wrote; the time is linear in its length.

    Returns:
        The caption, without white space around it; empty where reasoning is not closed. A text without a mark stays as
        it is.

    Example:
        >>> caption_in("<think>Is it red?</think>\\nA red star.<|im_end|>"), caption_in("Red.</think>A red star.")
        ('A red star.', 'A red star.')
        >>> caption_in("I take \\\\boxed{A red star.}"), caption_in("<think>Is it red?"), caption_in(" A red star.")
        ('A red star.', '', ' A red star.')
    """
    caption = without_ends(_answer_in(without_reasoning(text)))
    return text if caption == text else caption.strip()


def has_part_of_mark(token: str) -> bool:
    """Whether marks of reasoning or of answers have this token, such as gpt-oss's `<|message|>`."""
    pairs = _marks().reasoning | _marks().answers
    return any(token in mark for mark in [*pairs, *pairs.values()])


def decode_texts(processor: Any, rows: Sequence[Sequence[int]]) -> list[str]:
    """The texts of rows of tokens, without special tokens but those that `caption_in` needs to find the caption.

    Args:
        processor: a tokenizer, or a processor that has one.
        rows: tokens of each text.
    """
    tokenizer = getattr(processor, "tokenizer", processor)
    left_out: set[int] = set()
    marks: set[int] = set()
    for index, token in getattr(tokenizer, "added_tokens_decoder", {}).items():
        if token.special:
            (marks if has_part_of_mark(token.content) else left_out).add(index)
    texts: list[str] = processor.batch_decode(rows, skip_special_tokens=True)
    # Without the marks, which are special tokens of gpt-oss and Mistral, the reasoning would be part of the text.
    for number, ids in enumerate(rows):
        if not marks.isdisjoint(ids):
            [texts[number]] = processor.batch_decode([[index for index in ids if index not in left_out]])
    return texts


def without_reasoning(text: str) -> str:
    """A text without its reasoning, by the rule of `caption_in`; for what is no caption, such as a judge's reply.

    Example:
        >>> without_reasoning("<think>0.3?</think> 0.8"), without_reasoning("<think>0.3?"), without_reasoning("0.8 ")
        ('0.8', '', '0.8 ')
    """
    spans = _spans_without_reasoning(text)
    if spans == [(0, len(text))]:
        return text
    return "".join(text[start:end] for start, end in spans).strip()


def blank_reasoning(text: str) -> str:
    """A text with blanks in place of its reasoning, by the rule of `caption_in`; all else keeps its position.

    Example:
        >>> blank_reasoning("<think>0.3?</think>0.8")
        '                   0.8'
    """
    pieces = []
    position = 0
    for start, end in _spans_without_reasoning(text):
        pieces += [blank(text[position:start]), text[start:end]]
        position = end
    return "".join([*pieces, blank(text[position:])])


def is_reasoning_open(text: str) -> bool:
    """Whether a text holds reasoning that it does not close, so that its answer is still to come.

    Example:
        >>> is_reasoning_open("<think>Is it red?"), is_reasoning_open("<think>Is it red?</think>")
        (True, False)
    """
    return not _spans_without_reasoning(text)


def open_reasoning_end(text: str) -> str | None:
    """The mark that closes the reasoning which a text opens at its very end, as some chat templates do; else None.

    Example:
        >>> open_reasoning_end("<|assistant|><think>\\n"), open_reasoning_end("<|assistant|>")
        ('</think>', None)
    """
    text = text.rstrip()
    return next((closing for opening, closing in _marks().reasoning.items() if text.endswith(opening)), None)


def blank(text: str) -> str:
    """As many blanks as a text has characters; line breaks stay."""
    return re.sub(r"[^\n]", " ", text)


def without_ends(text: str) -> str:
    """A text without the marks at its end by which models end a turn; a text without such a mark stays as it is.

    Example:
        >>> without_ends("A red star.<|im_end|>\\n<|endoftext|>"), without_ends("A red star.\\n")
        ('A red star.', 'A red star.\\n')
    """
    # From behind, in one pass: to cut off one mark after another would copy the text for each.
    ends = _marks().ends_reversed.match(text[::-1])
    return text if ends is None else text[: len(text) - ends.end()]


@cache
def _marks() -> _Marks:
    import yaml  # type: ignore[import-untyped]  # on use; its stubs are a package of their own

    table = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    reasoning = dict(table["reasoning"])
    answers = dict(table["answers"])
    # Braces are marks, too: those within a box must be told from the one that closes it. Behind a backslash they are
    # letters, and are found only to be passed over.
    braces = ["{", "}", "\\{", "\\}"]
    return _Marks(
        reasoning=reasoning,
        reasoning_pattern=re.compile(_any_of([*reasoning, *reasoning.values()])),
        final=frozenset(table["final"]),
        answers=answers,
        answer_pattern=re.compile(_any_of([*answers, *answers.values(), *braces])),
        ends_reversed=re.compile(rf"(?:\s*(?:{_any_of(mark[::-1] for mark in table['ends'])}))+\s*"),
    )


def _any_of(marks: Iterable[str]) -> str:
    """A pattern of any of the marks, the longest where one begins with another."""
    longest_first = sorted(set(marks), key=len, reverse=True)
    return "|".join(map(re.escape, longest_first))


def _spans_without_reasoning(text: str) -> list[tuple[int, int]]:
    """Where the text stands that is no reasoning: (start, end) of each piece; none where reasoning is not closed."""
    marks = _marks()
    spans: list[tuple[int, int]] = []
    start = 0
    closing = None  # the mark that closes the reasoning which is open
    # One pass over the marks, so that the time stays linear: a search from each open mark to its end would take the
    # square. A mark that opens reasoning within reasoning says nothing.
    for match in marks.reasoning_pattern.finditer(text):
        mark = match[0]
        if closing is None and mark in marks.reasoning:
            spans.append((start, match.start()))
            closing = marks.reasoning[mark]
        elif closing is None or mark == closing:
            # Without one that opens it, the chat template has done that, and all before is reasoning.
            if closing is None or mark in marks.final:
                spans.clear()
            start = match.end()
            closing = None
    if closing is not None:
        return []
    return [*spans, (start, len(text))]


def _answer_in(text: str) -> str:
    """What stands in the last answer that is closed, else behind the mark that opens one; else the whole text."""
    answer = None
    start = None  # of the answer which is open
    for opens, mark_start, mark_end in _answer_marks(text):
        if opens:
            start = mark_end
        elif start is not None:
            answer = text[start:mark_start]
            start = None
        elif answer is None:  # the chat template has opened it
            answer = text[:mark_start]
    if answer is not None:
        return answer
    return text if start is None else text[start:]


def _answer_marks(text: str) -> Iterator[tuple[bool, int, int]]:
    """(whether it opens an answer or closes one, start, end) of the marks of answers in a text."""
    marks = _marks()
    boxes: list[bool] = []  # of each open brace, whether an answer ends where it is closed
    for match in marks.answer_pattern.finditer(text):
        mark = match[0]
        if mark in ("\\{", "\\}"):
            continue
        if mark.endswith("{"):
            boxes += [False] * (mark.count("{") - 1)
            boxes.append(mark in marks.answers)
        if mark in marks.answers:
            yield True, match.start(), match.end()
        elif mark == "}":
            if boxes and boxes.pop():
                yield False, match.start(), match.end()
        elif mark != "{":
            yield False, match.start(), match.end()


def end_tokens(processor: Any, *configs: Any) -> set[int]:
    """The tokens that end a caption: of the tokenizer, and of generation configs.

    Args:
        processor: a tokenizer, or a processor that has one.
        configs: have `eos_token_id`: a number, several, or None.
    """
    ends: set[int] = set()
    for config in (getattr(processor, "tokenizer", processor), *configs):
        ids = getattr(config, "eos_token_id", None)
        if isinstance(ids, (list, tuple, set)):
            ends.update(ids)
        elif ids is not None:
            ends.add(ids)
    return ends


def up_to_end(rows: Iterable[Sequence[int]], ends: set[int]) -> list[tuple[list[int], bool]]:
    """Each row of tokens up to its first end token, that included, and whether it has one. What follows is filling.

    Example:
        >>> up_to_end([[5, 6, 2, 0, 0], [5, 6, 7, 8, 9]], {2})
        [([5, 6, 2], True), ([5, 6, 7, 8, 9], False)]
    """
    cut = []
    for row in rows:
        tokens: list[int] = []
        has_ended = False
        for token in row:
            tokens.append(token)
            if token in ends:
                has_ended = True
                break
        cut.append((tokens, has_ended))
    return cut
