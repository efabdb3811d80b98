"""OracleJudge: answers the questions of the metrics caprl, claims and claimdiff about scenes, without a model."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import groupby
from typing import Any

from reward.errors import JudgeError
from reward.images import image_key
from reward.judges import Question, ScriptedJudge
from reward.metrics.caprl.scorer import CapRLPrompt
from reward.metrics.claimdiff.scorer import ClaimDiffPrompt
from reward.metrics.claims.scorer import ClaimsPrompt
from reward.scenes.graph import ACTIONS, COLOURS, MAX_COUNT, PATTERNS, WORDS, Fact, Scene
from reward.scenes.language import BACKGROUND_PHRASES, ING, POSITION_PHRASES
from reward.scenes.oracle import Oracle
from reward.scenes.render import render

__all__ = ["OracleJudge"]

# {kind of a fact: how its value is asked for, {option: value}}; sizes have too few values
_ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "colour": ("What colour is the {}?", {colour: colour for colour in COLOURS}),
    "pattern": ("What pattern does the {} have?", {pattern: pattern for pattern in PATTERNS}),
    "count": ("How many things of the kind {} are there?", {str(n): n for n in range(1, MAX_COUNT + 1)}),
    "position": ("Where in the picture is the {}?", {names[0]: cell for cell, names in POSITION_PHRASES.items()}),
    "action": ("What is the {} doing to the {}?", {ING[verb]: verb for verb in ACTIONS}),
    "text": ("Which word is written on the sign?", {word: word for word in WORDS}),
    "background": ("What is the background?", {phrase: name for name, phrase in BACKGROUND_PHRASES.items()}),
}


class OracleJudge(ScriptedJudge):
    """A judge that knows the truth about scenes and reads captions with the oracle, and nothing else.

    With an image it looks up its scene. Without, it knows what the oracle reads in the caption of the question. It
    understands the default prompts of caprl, claims and claimdiff. A perfect judge shows the most that these metrics
    can do: a model will be worse.

    Args:
        scenes: those whose rendered images it will see.
        slips: share of its choices (the letter of an option, the verdict on a claim) that are wrong, at random but
            always the same.

    Example:
        >>> from reward import CaptionSample
        >>> from reward.metrics.caprl.scorer import CapRLScorer
        >>> from reward.scenes import sample_scene
        >>> scene = sample_scene(random.Random(0))
        >>> CapRLScorer(OracleJudge([scene])).score([CaptionSample("A drawing.", render(scene))]).scores.tolist()
        [[0.0, 0.0]]
    """

    def __init__(self, scenes: Iterable[Scene], *, slips: float = 0.0) -> None:
        super().__init__(self._write, self._choose, name="oracle" if not slips else f"oracle, slips {slips:g}")
        self._scenes = {image_key(render(scene)): scene for scene in scenes}
        self._slips = slips

    def _scene(self, question: Question) -> Scene:
        key = image_key(question.image) if question.image is not None else None
        if key not in self._scenes:
            raise JudgeError("the oracle knows only the scenes that it was given, OracleJudge(scenes)")
        return self._scenes[key]

    def _write(self, question: Question) -> str:
        quotes = _quotes(question.text)
        if question.system == CapRLPrompt.default().system:
            return json.dumps(_quiz(self._scene(question), int(re.findall(r"\d+", question.text)[0])))
        if question.system == ClaimDiffPrompt.default().system:
            reference, caption = map(_read, quotes)
            return json.dumps(_differences(caption, reference, self._scene(question)))
        if question.system != ClaimsPrompt.default().system:
            raise JudgeError("the oracle understands only the default prompts of caprl, claims and claimdiff")
        if len(quotes) == 1:
            return json.dumps([_said(fact) for fact in sorted(_read(quotes[0]), key=str)])
        made = set(map(_said, _read(quotes[1])))
        claims = [line.partition(". ")[2] for line in quotes[0].splitlines()]
        return json.dumps([number for number, claim in enumerate(claims, 1) if claim in made])

    def _choose(self, question: Question) -> dict[str, float]:
        quotes = _quotes(question.text)
        if question.system == ClaimsPrompt.default().system:
            choices, right = ["0", "1"], str(int(self._scene(question).is_true(_fact(quotes[0]))))
        elif question.system == CapRLPrompt.default().system:
            scene = None if question.image is None else self._scene(question)
            claims = _read(quotes[0]) if quotes else frozenset()
            choices, right = _answer(question.text, claims.__contains__ if scene is None else scene.is_true)
        else:
            raise JudgeError("the oracle understands only the default prompts of caprl, claims and claimdiff")
        shown = "" if question.image is None else image_key(question.image)
        rng = random.Random(f"{question.text} {shown}")
        if rng.random() < self._slips:
            right = rng.choice([choice for choice in choices if choice != right])
        return {right: 1.0}


@lru_cache(maxsize=4096)
def _read(caption: str) -> frozenset[Fact]:
    return Oracle().read(caption).claims


def _quotes(text: str) -> list[str]:
    """The quoted texts of a question."""
    blocks = groupby(text.splitlines(), key=lambda line: line.startswith("> "))
    return ["\n".join(line[2:] for line in lines) for is_quoted, lines in blocks if is_quoted]


def _said(fact: Fact) -> str:
    return ", ".join(map(str, fact))


def _fact(claim: str) -> Fact:
    return tuple(int(part) if part.isdigit() else part for part in claim.split(", "))


def _quiz(scene: Scene, count: int) -> list[dict[str, Any]]:
    rng = random.Random(scene.to_json())
    facts = sorted((fact for fact in scene.facts() if fact[0] in _ASKED), key=str)
    quiz = []
    for fact in rng.sample(facts, min(count, len(facts))):
        ask, options = _ASKED[str(fact[0])]
        value, subjects = (fact[2], (fact[1], fact[3])) if len(fact) == 4 else (fact[-1], fact[1:-1])
        [right] = [option for option, meant in options.items() if meant == value]
        wrong = [option for option in options if option != right]
        others = rng.sample(wrong, min(3, len(wrong)))
        quiz.append({"question": ask.format(*subjects), "options": [right, *others]})
    return quiz


def _answer(text: str, is_true: Callable[[Fact], bool]) -> tuple[list[str], str]:
    """The letters of a question's options, and the one to choose: of the option known to be true, else the last."""
    lettered = re.findall(r"^([A-I])\) (.*)$", text, re.MULTILINE)
    asked = re.findall(r"^Question: (.*)$", text, re.MULTILINE)[-1]
    for kind, (ask, values) in _ASKED.items():
        if match := re.fullmatch(re.escape(ask).replace(r"\{\}", r"(\w+)"), asked):
            subjects = match.groups()
            facts = {
                letter: (kind, *subjects[:1], values[option], *subjects[1:])
                for letter, option in lettered
                if option in values
            }
            known = [letter for letter, fact in facts.items() if is_true(fact)]
            letters = [letter for letter, _ in lettered]
            return letters, known[0] if len(known) == 1 else letters[-1]
    raise JudgeError(f"the oracle does not understand the question {asked!r:.120}")


def _differences(caption: frozenset[Fact], reference: frozenset[Fact], scene: Scene) -> dict[str, Any]:
    """What one of two sets of claims says and the other does not; claims of one thing's property are one difference."""
    slots: dict[Fact, tuple[list[Fact], list[Fact]]] = {}
    for place, facts in enumerate((caption - reference, reference - caption)):
        for fact in sorted(facts, key=str):
            slot = fact[:-1] if fact[0] not in ("object", "action", "spatial") else fact
            slots.setdefault(slot, ([], []))[place].append(fact)
    listed, errors = [], [0, 0]
    for slot, said in slots.items():
        false = [any(not scene.is_true(fact) for fact in each) for each in said]
        # what follows from the places of things need not be told
        lacks = [
            slot[0] != "spatial" and not mine and any(map(scene.is_true, theirs)) for mine, theirs in (said, said[::-1])
        ]
        wrong = [false[place] or lacks[place] for place in range(2)]
        errors = [count + each for count, each in zip(errors, wrong, strict=True)]
        kind = "false" if false[0] else "missing" if lacks[0] else "other"
        who = {(True, True): "both", (True, False): "A", (False, True): "B"}.get((wrong[0], wrong[1]), "neither")
        listed.append({"what": _said(slot), "wrong": who, "kind": kind})
    return {"differences": listed, "better": "equal" if errors[0] == errors[1] else "AB"[errors[0] > errors[1]]}
