"""The prompts of VELA's language model: default texts, and references and candidate as tokens inside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from reward.backbones.language import PlainTextEncoder

if TYPE_CHECKING:
    from reward.metrics.vela.config import TextConfig

__all__ = ["DEFAULT_PROMPTS", "Prompt", "PromptLayout", "PromptTokenizer", "PromptTokens"]


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
_REFERENCE_MARK, _REFERENCE_SEPARATOR = "- ", "\n"  # before each reference, and between two
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


_FEWEST_TOKENS = 8  # of a reference: less of it says nothing


class PromptTokens(NamedTuple):
    """One prompt: the ids before the candidate, the candidate's, those after it, and whether any text was cut."""

    prefix: list[int]
    candidate: list[int]
    tail: list[int]
    truncated: bool


class PromptTokenizer:
    """Turns captions into prompts.

    Args:
        tokenizer: a `transformers` tokenizer.
        config: prompts and room.

    Raises:
        ValueError: a rubric leaves no room for a reference in `max_prefix_tokens`, or nothing follows the candidate.
    """

    def __init__(self, tokenizer: Any, config: TextConfig) -> None:
        self.tokenizer, self.config = tokenizer, config
        self._plain = PlainTextEncoder(tokenizer)
        framed = tokenizer if config.chat_template else None
        self._mark, self._separator = self._parsed(_REFERENCE_MARK), self._parsed(_REFERENCE_SEPARATOR)
        self._own: dict[tuple[str, bool], tuple[list[int], ...]] = {}
        for aspect, prompt in config.prompts.items():
            for with_references in (False, True):
                layout = PromptLayout.of(prompt, with_references=with_references, tokenizer=framed)
                parts = tuple(self._parsed(part) for part in (layout.start or "", layout.middle, layout.tail))
                self._own[aspect, with_references] = parts
                self._check(aspect, parts, len(self._mark) + _FEWEST_TOKENS if with_references else 0)

    def _check(self, aspect: str, parts: tuple[list[int], ...], smallest_reference: int) -> None:
        start, middle, tail = parts
        if not tail:
            raise ValueError(f"the prompt of {aspect!r} has nothing after the candidate: it needs a cue")
        needed = len(start) + len(middle) + smallest_reference
        if needed > self.config.max_prefix_tokens:
            raise ValueError(
                f"the rubric of {aspect!r} and the smallest piece of a reference take {needed} tokens, more than "
                f"max_prefix_tokens={self.config.max_prefix_tokens}"
            )

    def _parsed(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def prefix(self, references: Sequence[str], aspect: str) -> tuple[list[int], bool]:
        """Ids of everything before the candidate, and whether a reference was cut.

        References that do not fit are cut at their ends, the longest first. If that would leave a reference with
        fewer than 8 tokens, the last ones are left out instead.
        """
        start, middle, _ = self._own[aspect, bool(references)]
        room = self.config.max_prefix_tokens - len(start) - len(middle)
        ids, cut = self._references(tuple(references), room)
        return [*start, *ids, *middle], cut

    def _references(self, references: tuple[str, ...], room: int) -> tuple[list[int], bool]:
        if not references:
            return [], False
        texts = [self._plain(text) for text in references]
        marks = len(self._mark) + len(self._separator)
        room += len(self._separator)  # which the first reference does without
        cut = sum(len(ids) + marks for ids in texts) > room
        if cut:
            texts = texts[: max(1, room // (marks + _FEWEST_TOKENS))]
            longest = _common_limit([len(ids) for ids in texts], room - marks * len(texts))
            texts = [ids[:longest] for ids in texts]
        joined: list[int] = []
        for position, ids in enumerate(texts):
            joined += [*(self._separator if position else ()), *self._mark, *ids]
        return joined, cut

    def candidate(self, text: str) -> tuple[list[int], bool]:
        """Ids of the candidate, and whether its end was cut."""
        ids = self._plain(text)
        room = self.config.max_candidate_tokens
        return ids[:room], len(ids) > room

    def tail(self, aspect: str) -> list[int]:
        """Ids of everything after the candidate."""
        return list(self._own[aspect, True][2])

    def __call__(self, candidate: str, references: Sequence[str], aspect: str) -> PromptTokens:
        """The prompt of one candidate under one aspect's rubric."""
        return self.many([(candidate, references)], [aspect])[0][0]

    def many(self, texts: Sequence[tuple[str, Sequence[str]]], aspects: Sequence[str]) -> list[list[PromptTokens]]:
        """Prompts of (candidate, references) pairs under several aspects; shared texts are tokenised once."""
        candidates: dict[str, tuple[list[int], bool]] = {}
        prefixes: dict[tuple[tuple[str, ...], str], tuple[list[int], bool]] = {}
        rows = []
        for candidate, references in texts:
            references = tuple(references)
            if candidate not in candidates:
                candidates[candidate] = self.candidate(candidate)
            ids, cut = candidates[candidate]
            row = []
            for aspect in aspects:
                if (references, aspect) not in prefixes:
                    prefixes[references, aspect] = self.prefix(references, aspect)
                prefix, prefix_cut = prefixes[references, aspect]
                row.append(PromptTokens(prefix, ids, self.tail(aspect), prefix_cut or cut))
            rows.append(row)
        return rows


def _common_limit(lengths: Sequence[int], room: int) -> int:
    """The longest limit under which all texts, each cut to it, fit into the room."""
    if sum(lengths) <= room:
        return max(lengths, default=0)
    left = room
    for position, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - position)
        if length > share:
            return share
        left -= length
    raise AssertionError("texts that fit were handled above")
