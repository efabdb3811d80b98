"""Turns questions into the text and tokens of a local model: chat template, harmless control tokens, answer tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reward.data.written_captions import open_reasoning_end
from reward.errors import JudgeError
from reward.judges.base import NoProbabilities, Question, token_text


@dataclass(frozen=True, eq=False)
class Prompt:
    """A question as the model reads it.

    Args:
        text: holds one placeholder for the image, if there is one.
        image, image_key: the image, and what equal images share.
        temperature, seed: of sampling; 0 takes the most likely token.
    """

    text: str
    image: Any = None
    image_key: str | None = None
    temperature: float = 0.0
    seed: int = 0


class PlainTexts:
    """Makes control tokens that are written out in a text, such as an end-of-turn mark, harmless.

    Each gets a space after its first character, so that the tokenizer reads it as plain text.

    Args:
        processor: with a tokenizer, or a tokenizer.
    """

    def __init__(self, processor: Any) -> None:
        markers: set[Any] = {getattr(processor, "image_token", None), getattr(processor, "video_token", None)}
        for token in getattr(processor, "tokenizer", processor).added_tokens_decoder.values():
            if token.special or re.fullmatch(r"[<\[].+[>\]]", token.content):
                markers.add(token.content)
        texts = [marker for marker in markers if isinstance(marker, str) and len(marker.strip()) > 1]
        texts.sort(key=len, reverse=True)  # the longest first, where one begins with another
        no_match = r"(?!)"
        self._markers = re.compile("|".join(map(re.escape, texts)) or no_match)

    def __call__(self, text: str) -> str:
        # Again until there is none, since what follows the space in a broken marker may be another marker.
        while self._markers.search(text):
            text = self._markers.sub(self._with_space, text)
        return text

    @staticmethod
    def _with_space(match: re.Match[str]) -> str:
        marker = match[0]
        return f"{marker[0]} {marker[1:]}"


class PromptWriter:
    """Writes prompts with a processor's chat template and knows its tokens.

    Args:
        processor: of a vision-language model, with tokenizer and chat template.

    Raises:
        JudgeError: it has no tokenizer, an empty one, or no chat template.
    """

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.tokenizer: Any = getattr(processor, "tokenizer", None)
        if self.tokenizer is None:
            raise JudgeError(f"{type(processor).__name__} has no tokenizer; a judge needs a vision-language processor")
        if not (getattr(processor, "chat_template", None) or getattr(self.tokenizer, "chat_template", None)):
            raise JudgeError("the model's processor has no chat template; a judge needs a model tuned for chat")
        digit_ids = self.tokenizer("5", add_special_tokens=False)["input_ids"]
        if token_text(self.tokenizer.decode(digit_ids)) != "5":
            raise JudgeError("the model's tokenizer has no digits: its files are missing, and transformers made one up")
        self._plain = PlainTexts(processor)
        # Processors log a warning about a variable that their template does not have.
        templates = f"{getattr(processor, 'chat_template', None)} {getattr(self.tokenizer, 'chat_template', None)}"
        self._thinking = {"enable_thinking": False} if "enable_thinking" in templates else {}

    def text(self, question: Question) -> str:
        """The prompt of a question, opened for the answer.

        Where the template has no place for a system message, the message opens the first turn of the user.
        """
        with_system = question.system is None or self._has_system
        return self.chat(question.turns(with_system=with_system), with_image=question.image is not None)

    def chat(self, turns: Iterable[tuple[str, str]], *, with_image: bool = False) -> str:
        """A conversation by the template, opened for an answer where its last turn is no answer.

        Args:
            turns: (role, text); control tokens in a text are made harmless, see `PlainTexts`.
            with_image: whether an image is shown before the first text of the user.
        """
        messages: list[dict[str, Any]] = []
        for role, text in turns:
            parts: list[dict[str, str]] = [{"type": "text", "text": self._plain(text)}]
            if with_image and role == "user":
                parts.insert(0, {"type": "image"})
                with_image = False
            messages.append({"role": role, "content": parts})
        opens_answer = messages[-1]["role"] != "assistant"
        prompt = self.processor.apply_chat_template(
            messages, add_generation_prompt=opens_answer, tokenize=False, **self._thinking
        )
        # An answer is read right after the prompt. Where a template opens reasoning all the same, it is closed here,
        # and left empty.
        closing = open_reasoning_end(prompt)
        return prompt if closing is None else f"{prompt.rstrip()}\n\n{closing}\n\n"

    @cached_property
    def _has_system(self) -> bool:
        """Whether the chat template shows system messages."""
        from jinja2 import TemplateError

        try:
            return "rubric" in self.chat([("system", "rubric"), ("user", "question")])
        except TemplateError:  # how templates say that they know no such role
            return False

    def ids(self, text: str) -> list[int]:
        """Token ids of a prompt as the processor cuts it, with the image's placeholder not yet expanded."""
        return list(self.tokenizer(text, **self.tokenizer_options(text))["input_ids"])

    def tokenizer_options(self, text: str) -> dict[str, Any]:
        """Arguments of the tokenizer for a prompt: one that the template begins with the first token gets no second."""
        if self.tokenizer.bos_token and text.startswith(self.tokenizer.bos_token):
            return {"add_special_tokens": False}
        return {}

    @cached_property
    def token_texts(self) -> list[str]:
        """What each token of the vocabulary reads like, by id."""
        tokens = [[token] for token in range(len(self.tokenizer))]
        return list(self.tokenizer.batch_decode(tokens, clean_up_tokenization_spaces=False))

    @cached_property
    def _ids_of(self) -> dict[str, list[int]]:
        """{text: tokens that read like it, white space aside}, without special tokens."""
        special = set(self.tokenizer.all_special_ids)
        ids: dict[str, list[int]] = {}
        for token, text in enumerate(self.token_texts):
            if token not in special:
                ids.setdefault(token_text(text), []).append(token)
        return ids

    @cached_property
    def blank_ids(self) -> list[int]:
        """Tokens of white space alone, such as the "\u2581" that the tokenizers of Llama put before a digit."""
        blank = self._ids_of.get("", [])
        # An unused id between 0 and the largest one is decoded to an empty text, too.
        return [token for token in blank if self.tokenizer.convert_ids_to_tokens(token) is not None]

    def has_token(self, text: str) -> bool:
        """Whether a token reads like a text, white space aside."""
        return text in self._ids_of

    def answer_ids(self, answers: Sequence[str]) -> list[list[int]]:
        """For each answer the ids of all tokens whose text is that answer, apart from white space.

        Raises:
            NoProbabilities: an answer is not a single token of this tokenizer.
        """
        absent = [answer for answer in answers if not self.has_token(answer)]
        if absent:
            raise NoProbabilities(
                f"the judge's tokenizer has no single token for {', '.join(map(repr, absent))} "
                f"(it cuts {absent[0]!r} into {list(self.pieces(absent[0]))}); choose answers of one token each"
            )
        return [self._ids_of[answer] for answer in answers]

    def pieces(self, text: str) -> tuple[str, ...]:
        """How the tokenizer cuts a text: token texts that are stripped and not empty.

        `pieces("0.85") == ("0", ".", "8", "5")` says that digits are written one by one.
        """
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        pieces = [token_text(self.token_texts[token]) for token in ids]
        return tuple(filter(None, pieces))
