"""The prompts of VELA's language model: default texts, and the places of references and candidate in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pydantic
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from reward.data.settings import STRICT, Settings
from reward.errors import ConfigError


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class AspectPrompt(Settings):
    """The prompt texts of one aspect. They are stored in the checkpoint, because the weights are trained on them.

    Args:
        system: rubric of the aspect.
        references: start of the user turn if there are references; must hold `{references}` once.
        candidate: rest of the user turn; must hold `{candidate}` once.
        cue: start of the assistant turn, which a score would follow.

    Raises:
        ConfigError: a field is not a text, or a placeholder is missing or repeated.
    """

    place: ClassVar[str] = "text.prompts."

    system: str
    references: str = "Reference captions, written by people who saw the image:\n{references}\n\n"
    candidate: str = "Candidate caption:\n{candidate}"
    cue: str = "Score:"

    def __post_init__(self) -> None:
        for name, text in (("references", self.references), ("candidate", self.candidate)):
            if text.count(f"{{{name}}}") != 1:
                raise ConfigError(f"prompt text {name!r} must hold {{{name}}} exactly once, got {text!r}")


def _default_prompts() -> dict[str, AspectPrompt]:
    rubrics = yaml.safe_load((Path(__file__).parent / "prompts.yaml").read_text("utf-8"))
    prompts = {}
    for aspect, rubric in rubrics.items():
        scale = "\n".join(f"{grade} - {text}" for grade, text in enumerate(rubric["levels"], start=1))
        prompts[aspect] = AspectPrompt(
            f"You grade captions of images. Grade one quality only: {aspect}, {rubric['meaning']} "
            f"Leave every other quality out of account.\n{scale}\nAnswer with a number only, from 1 to 5."
        )
    return prompts


DEFAULT_PROMPTS: dict[str, AspectPrompt] = _default_prompts()

# Marks for the places of the texts, in private-use characters, which no chat template has.
_REFERENCES = "\ue000references\ue001"
_CANDIDATE = "\ue000candidate\ue001"
# Some chat templates insert the date of today, on which scores must not depend.
_TEMPLATE_DATE = "01 January 2025"


def lay_out(prompt: AspectPrompt, *, with_references: bool, tokenizer: Any | None) -> tuple[str, str, str]:
    """The texts around references and candidate: before the references, between the two, and after the candidate.

    They may hold control tokens, which references and candidate never do.

    Args:
        prompt: the texts of the aspect.
        with_references: whether there are references; without, the first text is empty.
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
    # A template may strip, drop or repeat a turn. The marks show it, which stand where captions will.
    text += prompt.cue
    if text.count(_CANDIDATE) != 1 or text.count(_REFERENCES) != int(with_references):
        raise ValueError("the tokenizer's chat template does not show the user's text exactly once and unchanged")
    before, tail = text.split(_CANDIDATE)
    if not with_references:
        return "", before, tail
    start, middle = before.split(_REFERENCES)
    return start, middle, tail


def _in_chat_template(tokenizer: Any, system: str, user: str) -> str:
    from jinja2 import TemplateError

    options = {"tokenize": False, "add_generation_prompt": True, "date_string": _TEMPLATE_DATE}
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    try:
        text: str = tokenizer.apply_chat_template(messages, **options)
    except TemplateError:  # some templates, such as Gemma's, have no system turn
        text = tokenizer.apply_chat_template([{"role": "user", "content": f"{system}\n\n{user}"}], **options)
    return text
