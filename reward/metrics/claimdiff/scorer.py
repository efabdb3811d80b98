"""ClaimDiffScorer: asks a judge for the differences between a caption and a reference, and who is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from reward.errors import ConfigError
from reward.judges.base import Judge
from reward.judges.wording import JudgePrompt, fill
from reward.metrics.asking import AskingScorer
from reward.metrics.claimdiff import SPEC
from reward.metrics.judged import JudgedCaption

__all__ = ["FORMS", "ClaimDiffPrompt", "ClaimDiffScorer", "Differences", "read_differences"]

_WRONG = {"A": (1, 0), "B": (0, 1), "both": (1, 1), "neither": (0, 0)}
_BETTER = {"A": 1, "B": -1, "equal": 0}


@dataclass(frozen=True)
class ClaimDiffPrompt(JudgePrompt):
    """The texts of the question, see `prompt.yaml` beside this file."""

    metric = "claimdiff"
    default_file = Path(__file__).with_name("prompt.yaml")
    places: ClassVar = {"captions": ("reference", "candidate")}

    version: str
    system: str
    captions: str
    ask: str
    quote: bool = True


class Differences(NamedTuple):
    """Numbers of differences: all; those in which the caption is wrong, and the reference; those in which the caption
    says something false, and leaves out something true; and 1, -1 or 0 if the caption is better, worse or as good."""

    total: int
    caption: int
    reference: int = 0
    false: int = 0
    missing: int = 0
    better: int = 0


def _normalized_a_only(found: Differences) -> float:
    if not found.total:
        return 1.0
    many = 0.7 + 0.3 * min(1.0, math.log(1 + found.total) / math.log(11))
    return (0.05 + 0.95 * (1 - found.caption / found.total) ** 2) * math.exp(-found.caption / 4) * many


FORMS: dict[str, Callable[[Differences], float]] = {
    "a_only": lambda d: max(0.0, 1 - d.caption / 10),
    "normalized_diff": lambda d: 0.5 - 0.5 * (d.caption - d.reference) / (d.total or 1),
    "judgment": lambda d: min(1.0, max(0.0, 0.5 + 0.5 * ((d.reference - d.caption) / (d.total or 1) + 0.1 * d.better))),
    "hall_vs_miss": lambda d: 1 - (d.false + d.missing) / (d.total or 1),
    "normalized_a_only": _normalized_a_only,
}


class ClaimDiffScorer(AskingScorer):
    """Atomic differences between a caption (A) and its first reference (B), of which the judge says who is wrong.

    With D differences, of which the caption is wrong in e_A and the reference in e_B, the forms are

    - `a_only`, the default: 1 - e_A / 10, and 0 from ten errors on.
    - `normalized_diff`: (1 - (e_A - e_B) / D) / 2.
    - `judgment`: (1 + (e_B - e_A) / D ± 0.1) / 2, the last for the caption that is better as a whole.
    - `hall_vs_miss`: 1 - (false + missing) / D.
    - `normalized_a_only`: (.05 + .95 (1 - e_A/D)^2) exp(-e_A/4) (.7 + .3 min(1, ln(1 + D) / ln 11)).

    Without differences, a form gives what it gives for no errors: 1, or 1/2 for the second and third.

    Only `a_only` depends on nothing but the caption's errors. In the others D counts, which is the judge's choice: a
    policy that adds harmless details raises D and so dilutes its errors. `normalized_a_only` even gives 1 to a caption
    without differences and .79 to one with a single difference and no error. The price of `a_only` is that ten errors
    and twenty are worth the same.

    An answer that cannot be read gives no score.

    Source: ClaimDiff-RL (arXiv 2605.20278), without its weights of severity and its factor for hedging.

    Args:
        judge: a vision-language model.
        form: one of the above.
        settings: see `AskingScorer`.

    Raises:
        ConfigError: there is no such form.

    Example:
        >>> from PIL import Image
        >>> from reward import CaptionSample
        >>> from reward.judges import ScriptedJudge
        >>> differences = '{"differences": [{"wrong": "A", "kind": "missing"}], "better": "B"}'
        >>> scorer = ClaimDiffScorer(ScriptedJudge(lambda asked: differences))
        >>> scorer.score([CaptionSample("A star.", Image.new("RGB", (8, 8)), ["A big star."])]).scores.tolist()
        [[0.9]]
    """

    spec = SPEC
    prompt_class = ClaimDiffPrompt

    def __init__(self, judge: Judge, *, form: str = "a_only", **settings: Any) -> None:
        super().__init__(judge, **settings)
        if form not in FORMS:
            raise ConfigError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
        self.form = form

    def rate(self, captions: list[JudgedCaption]) -> list[Sequence[float] | str]:
        """See `JudgedScorer.rate`."""
        asked = []
        for caption in captions:
            texts = {"reference": caption.references[0], "candidate": caption.candidate}
            quoted = {name: self.prompt.quoted(text) for name, text in texts.items()}
            asked.append((f"{fill(self.prompt.captions, **quoted)}\n\n{self.prompt.ask}", caption.image))
        found = [read_differences(answer) for answer in self.write(asked, dict)]
        return [each if isinstance(each, str) else [FORMS[self.form](each)] for each in found]

    def _saved_settings(self) -> dict[str, Any]:
        return {**super()._saved_settings(), "form": self.form}


def read_differences(answer: dict[str, Any] | str) -> Differences | str:
    """Counts the differences in a judge's answer; a string says what is wrong with it.

    Example:
        >>> read_differences({"differences": [{"wrong": "A", "kind": "false"}], "better": "B"})
        Differences(total=1, caption=1, reference=0, false=1, missing=0, better=-1)
    """
    if isinstance(answer, str):
        return answer
    listed, better = answer.get("differences"), answer.get("better")
    if not isinstance(listed, list) or better not in list(_BETTER):
        return f'the answer must hold the list "differences", and "better" as A, B or equal: {answer!r:.120}'
    for each in listed:
        wrong, kind = (each.get("wrong"), each.get("kind")) if isinstance(each, dict) else (None, None)
        if wrong not in list(_WRONG) or kind not in ["false", "missing", "other"]:
            return f'a difference must hold "wrong" and "kind" in the words that were asked for: {each!r:.120}'
    wrongs, kinds = [_WRONG[each["wrong"]] for each in listed], [each["kind"] for each in listed]
    caption, reference = (sum(wrong[place] for wrong in wrongs) for place in range(2))
    false, missing = kinds.count("false"), kinds.count("missing")
    return Differences(len(listed), caption, reference, false, missing, _BETTER[str(better)])
