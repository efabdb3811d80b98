"""The prompts of VELA's language-model branch: default texts, and how references and candidate are set into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["DEFAULT_PROMPTS", "REFERENCE_MARK", "REFERENCE_SEPARATOR", "Prompt", "PromptLayout"]


@dataclass(frozen=True)
class Prompt:
    """The texts of one aspect. They are stored in the checkpoint, because the weights are trained on them.

    Args:
        system: rubric of the aspect.
        references: start of the user turn when there are references; must hold `{references}` once.
        candidate: rest of the user turn; must hold `{candidate}` once.
        cue: start of the assistant turn, after which a judge would write the score.

    Raises:
        ValueError: a text is none, or a placeholder is missing or doubled.
    """

    system: str
    references: str = "Reference captions, written by people who saw the image:\n{references}\n\n"
    candidate: str = "Candidate caption:\n{candidate}"
    cue: str = "Score:"

    def __post_init__(self) -> None:
        for field in ("system", "references", "candidate", "cue"):
            if not isinstance(getattr(self, field), str):
                raise ValueError(f"prompt text {field!r} must be a text, got {getattr(self, field)!r:.200}")
        for field, mark in (("references", "{references}"), ("candidate", "{candidate}")):
            if getattr(self, field).count(mark) != 1:
                raise ValueError(f"prompt text {field!r} must hold {mark} exactly once, got {getattr(self, field)!r}")


def _rubric(aspect: str, meaning: str, levels: Sequence[str]) -> Prompt:
    scale = "\n".join(f"{level} - {text}" for level, text in enumerate(levels, start=1))
    return Prompt(
        f"You grade captions of images. Grade one quality only: {aspect}, {meaning} "
        f"Leave every other quality out of account.\n{scale}\nAnswer with a number only, from 1 to 5."
    )


DEFAULT_PROMPTS: dict[str, Prompt] = {
    "descriptiveness": _rubric(
        "descriptiveness",
        "how much of what the image shows is told: its objects, their properties, and how they are related.",
        (
            "next to nothing of the image is told",
            "a few main things are named, most of the image is missing",
            "the main things are told, many details are missing",
            "most things and many details are told",
            "nearly everything that can be seen is told, in detail",
        ),
    ),
    "relevance": _rubric(
        "relevance",
        "whether what is told is true of the image: no wrong or invented objects, properties or relations.",
        (
            "it tells of another image",
            "more is wrong than right",
            "right in the main, with several clear mistakes",
            "right but for a slip or two",
            "everything told is true of the image",
        ),
    ),
    "fluency": _rubric(
        "fluency",
        "whether it reads well: correct grammar and spelling, natural wording, no needless repetition.",
        (
            "it cannot be read as language",
            "hard to read, with many errors or much repetition",
            "readable, with several errors or clumsy passages",
            "reads well but for a small flaw",
            "reads as if written by a careful native writer",
        ),
    ),
}

_REFERENCES, _CANDIDATE = "\ue000references\ue001", "\ue000candidate\ue001"  # private-use characters: in no template
REFERENCE_MARK, REFERENCE_SEPARATOR = "- ", "\n"  # before each reference, and between two
# Some chat templates print today's date unless told one; a score must not depend on the day.
_TEMPLATE_DATE = "01 January 2025"


@dataclass(frozen=True)
class PromptLayout:
    """A prompt cut where text from outside goes in: our own parts may hold control tokens, captions never do.

    Args:
        start: up to the references; None if there are none, then `middle` is the start.
        middle: from the references to the candidate.
        tail: after the candidate.
    """

    start: str | None
    middle: str
    tail: str

    @classmethod
    def of(cls, prompt: Prompt, *, with_references: bool, tokenizer: Any | None) -> PromptLayout:
        """Lays out a prompt.

        Args:
            prompt: the texts of the aspect.
            with_references: whether the part about references is there.
            tokenizer: its chat template is applied; None writes system, user and cue one after the other.

        Raises:
            ValueError: the chat template does not show the user's text as it is.
        """
        user = prompt.candidate.replace("{candidate}", _CANDIDATE)
        if with_references:
            user = prompt.references.replace("{references}", _REFERENCES) + user
        if tokenizer is None:
            text = f"{prompt.system}\n\n{user}\n\n"
        else:
            text = _in_chat_template(tokenizer, prompt.system, user)
        text += prompt.cue
        if text.count(_CANDIDATE) != 1 or text.count(_REFERENCES) != int(with_references):
            raise ValueError("the tokenizer's chat template does not show the user's text exactly once and unchanged")
        before, tail = text.split(_CANDIDATE)
        if not with_references:
            return cls(None, before, tail)
        start, middle = before.split(_REFERENCES)
        return cls(start, middle, tail)


def _in_chat_template(tokenizer: Any, system: str, user: str) -> str:
    from jinja2 import TemplateError

    options = {"tokenize": False, "add_generation_prompt": True, "date_string": _TEMPLATE_DATE}
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    try:
        text: str = tokenizer.apply_chat_template(messages, **options)
    except TemplateError:  # raised by templates that know no system turn, such as Gemma's
        text = tokenizer.apply_chat_template([{"role": "user", "content": f"{system}\n\n{user}"}], **options)
    return text
