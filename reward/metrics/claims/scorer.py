"""ClaimsScorer: lists a caption's claims, verifies each against the image, and looks for those of the references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from reward.judges.base import Judge
from reward.judges.wording import JudgePrompt, fill
from reward.metrics.asking import AskingScorer
from reward.metrics.claims import SPEC
from reward.metrics.judged import JudgedCaption
from reward.samples import is_wordless

__all__ = ["ClaimsPrompt", "ClaimsScorer", "agreement"]


@dataclass(frozen=True)
class ClaimsPrompt(JudgePrompt):
    """The texts of the three questions, see `prompt.yaml` beside this file."""

    metric = "claims"
    default_file = Path(__file__).with_name("prompt.yaml")
    places: ClassVar = {"list": ("text",), "verify": ("claim",), "cover": ("claims", "text")}

    version: str
    system: str
    list: str
    verify: str
    cover: str
    quote: bool = True


class ClaimsScorer(AskingScorer):
    """Precision and recall of a caption's verified claims, and their F1, which is the reward.

    The judge lists the atomic claims of the caption, without the image, and verifies each against the image. Precision
    is the share that is true; alone, it would pay for saying little. Recall is the share of the references' claims that
    the caption makes, true or not. A claim counts once however often it is made, so that repeating it earns nothing. A
    caption that claims nothing gets 0. One of which an answer cannot be read gets no score.

    Lists and verdicts are kept: a claim about an image is verified once.

    Args:
        judge: a vision-language model.
        use_references: False leaves the aspect `precision` alone and needs no references.
        settings: see `AskingScorer`.

    Example:
        >>> from PIL import Image
        >>> from reward import CaptionSample
        >>> from reward.judges import ScriptedJudge
        >>> judge = ScriptedJudge(lambda asked: '["It is red.", "It is big."]', lambda asked: {"1": 1.0})
        >>> scorer = ClaimsScorer(judge, use_references=False)
        >>> scorer.score([CaptionSample("A big red star.", Image.new("RGB", (8, 8)))]).scores.tolist()
        [[1.0]]
    """

    spec = SPEC
    prompt_class = ClaimsPrompt

    def __init__(self, judge: Judge, *, use_references: bool = True, **settings: Any) -> None:
        super().__init__(judge, **settings)
        self.use_references = use_references
        if not use_references:
            precision = SPEC.with_aspects(["precision"])
            self.spec = replace(precision, needs_references=False, default_weights={"precision": 1.0})

    def rate(self, captions: list[JudgedCaption]) -> list[Sequence[float] | str]:
        """See `JudgedScorer.rate`."""
        true = self._verify(captions, self._list([caption.candidate for caption in captions]))
        if not self.use_references:
            return [told if isinstance(told, str) else agreement(told, [])[1:2] for told in true]
        wanted = self._list(["\n\n".join(caption.references) for caption in captions])
        made = self._cover(captions, wanted)
        return [
            next((each for each in (told, found) if isinstance(each, str)), None) or agreement(told, found)
            for told, found in zip(true, made, strict=True)
        ]

    def _list(self, texts: list[str]) -> list[Any]:
        """The different claims of each text."""

        def find(rows: list[int]) -> list[Any]:
            asked = [(fill(self.prompt.list, text=self.prompt.quoted(texts[row])), None) for row in rows]
            return [_different(claims) for claims in self.write(asked, list)]

        return self.keep([("list", text) for text in texts], find)

    def _verify(self, captions: list[JudgedCaption], made: list[Any]) -> list[Any]:
        """Whether each claim of each caption is true; all claims are asked about together."""
        pairs = [(row, claim) for row, claims in enumerate(made) if not isinstance(claims, str) for claim in claims]

        def find(places: list[int]) -> list[Any]:
            chosen = [pairs[place] for place in places]
            text = self.prompt.verify
            asked = [(fill(text, claim=self.prompt.quoted(claim)), captions[row].image) for row, claim in chosen]
            return [each if isinstance(each, str) else bool(each) for each in self.choose(asked, ["0", "1"])]

        verdicts = self.keep([("verdict", captions[row].image_key, claim) for row, claim in pairs], find)
        told: list[Any] = [claims if isinstance(claims, str) else [] for claims in made]
        for (row, _), verdict in zip(pairs, verdicts, strict=True):
            if not isinstance(told[row], str):
                told[row] = verdict if isinstance(verdict, str) else [*told[row], verdict]
        return told

    def _cover(self, captions: list[JudgedCaption], wanted: list[Any]) -> list[Any]:
        """For each caption, which claims of its references it makes."""
        made: list[Any] = [claims or "the references make no claims" for claims in wanted]
        rows = [row for row, claims in enumerate(made) if not isinstance(claims, str)]
        asked = []
        for row in rows:
            numbered = "\n".join(f"{number}. {claim}" for number, claim in enumerate(made[row], 1))
            texts = {"claims": self.prompt.quoted(numbered), "text": self.prompt.quoted(captions[row].candidate)}
            asked.append((fill(self.prompt.cover, **texts), None))
        for row, numbers in zip(rows, self.write(asked, list), strict=True):
            made[row] = _marks(numbers, len(made[row]))
        return made

    def _saved_settings(self) -> dict[str, Any]:
        return {**super()._saved_settings(), "use_references": self.use_references}


def agreement(true: Sequence[bool], made: Sequence[bool]) -> tuple[float, ...]:
    """F1, precision and recall, each 0 where there are no claims.

    Args:
        true: of each different claim of a caption, whether it is true.
        made: of each different claim of the references, whether the caption makes it.

    Example:
        >>> agreement([True, True, False, False], [True, False])
        (0.5, 0.5, 0.5)
    """
    precision, recall = (sum(each) / len(each) if each else 0.0 for each in (true, made))
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0, precision, recall


def _different(claims: Any) -> Any:
    """The claims of a judge's list, each once: case, white space and a full stop make no difference."""
    if isinstance(claims, str):
        return claims
    for claim in claims:
        if not isinstance(claim, str) or is_wordless(claim):
            return f"a claim must be a text with words, got {claim!r:.80}"
    plain = [" ".join(claim.split()).rstrip(".") for claim in claims]
    return list({claim.casefold(): claim for claim in reversed(plain)}.values())[::-1]


def _marks(numbers: Any, count: int) -> Any:
    """Whether each of the claims 1 to `count` is named."""
    if isinstance(numbers, str):
        return numbers
    for number in numbers:
        if type(number) is not int or not 1 <= number <= count:  # True is an int, too
            return f"the claims are numbered from 1 to {count}, and the judge names {number!r:.80}"
    return [number in numbers for number in range(1, count + 1)]
