"""VELA's prompts as token ids, cut to the room there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from reward.backbones.language import PlainTextEncoder
from reward.errors import ConfigError
from reward.metrics.vela.config import TextConfig
from reward.metrics.vela.prompts import PromptLayout

__all__ = ["PromptTokenizer", "PromptTokens"]

_REFERENCE_MARK, _REFERENCE_SEPARATOR = "- ", "\n"  # before each reference, and between two
_FEWEST_TOKENS = 8  # of a reference that is cut; fewer say nothing


class PromptTokens(NamedTuple):
    """One prompt: the ids before the candidate, the candidate's, those after it, and whether any text was cut."""

    prefix: list[int]
    candidate: list[int]
    tail: list[int]
    truncated: bool


class PromptTokenizer:
    """Turns captions into prompts of token ids.

    Args:
        tokenizer: a `transformers` tokenizer.
        config: prompts and room.

    Raises:
        ConfigError: a rubric leaves no room for a reference in `max_prefix_tokens`.
        ValueError: no cue follows the candidate.
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
            raise ConfigError(
                f"the rubric of {aspect!r} and the smallest piece of a reference take {needed} tokens, more than "
                f"max_prefix_tokens={self.config.max_prefix_tokens}; raise it (model.text.max_prefix_tokens)"
            )

    def _parsed(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def prefix(self, references: Sequence[str], aspect: str) -> tuple[list[int], bool]:
        """Ids of everything before the candidate, and whether a reference was cut.

        References that do not fit are cut at their ends, the longest first. If a reference would keep fewer than 8
        tokens, the last ones are dropped instead.
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
        room += len(self._separator)  # no separator before the first reference
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
        """The prompt of one candidate for one aspect."""
        return self.many([(candidate, references)], [aspect])[0][0]

    def many(self, texts: Sequence[tuple[str, Sequence[str]]], aspects: Sequence[str]) -> list[list[PromptTokens]]:
        """Prompts of (candidate, references) pairs for several aspects; shared texts are tokenised once."""
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
    """The largest length to which all texts can be cut so that together they fit into the room."""
    if sum(lengths) <= room:
        return max(lengths, default=0)
    left = room
    for position, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - position)
        if length > share:
            return share
        left -= length
    raise AssertionError("texts that fit were handled above")
