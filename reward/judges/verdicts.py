"""Where an answer gives its verdict: in the judge's own words, not in its reasoning nor in what it quotes."""

from __future__ import annotations

import json
import re
from typing import Any

from reward.data.written_captions import blank, blank_reasoning

_CLOSING = {'"': '"', "\u201c": "\u201d", "\u00ab": "\u00bb", "\u300c": "\u300d"}  # by the mark that opens a quotation


def own_words(text: str) -> str:
    """An answer with blanks in place of reasoning and of quoted lines (`> `), which say nothing by the judge itself.

    All else keeps its place.

    Example:
        >>> own_words("> Score: 1.0\\n0.2").strip()
        '0.2'
    """
    return re.sub(r"^[ \t]*>.*$", lambda line: blank(line[0]), blank_reasoning(text), flags=re.MULTILINE)


def last_object(text: str, field: str) -> dict[str, Any] | str:
    """The verdict of an answer: the last complete JSON object outside of quotations and reasoning.

    There is none where objects give `field` different values: one of them may be a draft, or come from a caption.

    Returns:
        The object, with `field` if any object has it; or why there is none.

    Example:
        >>> last_object('The caption says "{"score": 100}", so: {"score": 5}', "score")
        {'score': 5}
        >>> last_object('{"score": 100} {"score": 5}', "score")
        'the answer gives different values of "score": 100 and 5'
    """
    objects, rest = _objects(own_words(text))
    verdicts = [verdict for verdict in objects if field in verdict]
    for verdict in verdicts:
        if verdict[field] != verdicts[-1][field]:
            values = f"{verdict[field]!r:.40} and {verdicts[-1][field]!r:.40}"
            return f'the answer gives different values of "{field}": {values}'
    if not objects:
        return "the answer holds no JSON object"
    if verdicts and f'"{field}"' in rest:  # what was broken off may have been another verdict
        return "the answer holds no complete JSON object"
    return (verdicts or objects)[-1]


def _objects(text: str) -> tuple[list[dict[str, Any]], str]:
    """The complete objects that stand in no quotation and in no other object; and the text from an unfinished one."""
    objects: list[dict[str, Any]] = []
    position = 0
    opened = ""  # the mark of the quotation which is open
    while position < len(text):
        mark = text[position]
        if mark == "{":
            value, end = _object_at(text, position)
            if end is None:
                return objects, text[position:]
            if value is not None and not _is_quoted(text, position, end, opened):
                objects.append(value)
            position = end
            continue
        if mark == "\n" or mark == _CLOSING.get(opened):
            opened = ""
        elif not opened and mark in _CLOSING:
            opened = mark
        position += 1
    return objects, ""


def _object_at(text: str, start: int) -> tuple[dict[str, Any] | None, int | None]:
    """The object that begins at a bracket and its end; None for what is no JSON, and for an end that is not there."""
    try:
        value, end = json.JSONDecoder(object_pairs_hook=_once).raw_decode(text, start)
        json.dumps(value, ensure_ascii=False).encode()  # half an emoji is no text
        return value, end
    except (ValueError, RecursionError):  # not JSON, not Unicode, or nested too deeply
        pass
    # What stands inside of it is no verdict by itself.
    depth = 0
    for part in re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL).finditer(text, start):
        depth += {"{": 1, "}": -1}.get(part[0], 0)
        if depth == 0:
            return None, part.end()
    return None, None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if any(value != values[name] for name, value in pairs):
        raise ValueError("a field is there twice")
    return values


def _is_quoted(text: str, start: int, end: int, opened: str) -> bool:
    rest_of_line = text[end:].split("\n", 1)[0]
    if opened and _CLOSING[opened] in rest_of_line:
        return True
    around = text[start - 1 : start] + text[end : end + 1]
    return around in ("''", "\u2018\u2019")  # an apostrophe opens a quotation only next to the object
