"""The prompts of VELA's language model: default texts, and the places of references and candidate in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reward.errors import ConfigError
from reward.metrics.settings import Settings


@dataclass(frozen=True)
class Prompt(Settings):
    """The prompt texts of one aspect. They are stored in the checkpoint, because the weights are trained on them.

    Args:
        system: rubric of the aspect.
        references: start of the user turn if there are references; must hold `{references}` once.
        candidate: rest of the user turn; must hold `{candidate}` once.
        cue: start of the assistant turn, which a score would follow.

    Raises:
        ConfigError: a field is not a text, or a placeholder is missing or repeated.
    """

    place = "text.prompts."

    system: str
    references: str = "Reference captions, written by people who saw the image:\n{references}\n\n"
    candidate: str = "Candidate caption:\n{candidate}"
    cue: str = "Score:"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, text in (("references", self.references), ("candidate", self.candidate)):
            if text.count(f"{{{name}}}") != 1:
                raise ConfigError(f"prompt text {name!r} must hold {{{name}}} exactly once, got {text!r}")


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

# Marks for the places of the texts, in private-use characters, which no chat template has.
_REFERENCES, _CANDIDATE = "\ue000references\ue001", "\ue000candidate\ue001"
# Some chat templates insert the date of today, on which scores must not depend.
_TEMPLATE_DATE = "01 January 2025"


@dataclass(frozen=True)
class PromptLayout:
    """The parts of a prompt around references and candidate. These parts may hold control tokens, captions never do.

    Args:
        start: text before the references; empty without references, when `middle` is all before the candidate.
        middle: text between references and candidate.
        tail: text after the candidate.
    """

    start: str
    middle: str
    tail: str

    @classmethod
    def of(cls, prompt: Prompt, *, with_references: bool, tokenizer: Any | None) -> PromptLayout:
        """Lays out a prompt.

        Args:
            prompt: the texts of the aspect.
            with_references: whether there are references.
            tokenizer: its chat template is applied; None joins system, user and cue without a template.

        Raises:
            ValueError: the chat template changes, drops or repeats the user's text.
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
            return cls("", before, tail)
        start, middle = before.split(_REFERENCES)
        return cls(start, middle, tail)


def _in_chat_template(tokenizer: Any, system: str, user: str) -> str:
    from jinja2 import TemplateError

    options = {"tokenize": False, "add_generation_prompt": True, "date_string": _TEMPLATE_DATE}
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    try:
        text: str = tokenizer.apply_chat_template(messages, **options)
    except TemplateError:  # some templates, such as Gemma's, have no system turn
        text = tokenizer.apply_chat_template([{"role": "user", "content": f"{system}\n\n{user}"}], **options)
    return text
