"""One question as a chat completion of an OpenAI-compatible server: what is sent, and how a reply is read."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

from reward.http_client import UnusableReply
from reward.images import load_image
from reward.judges.base import Answer, Question

if TYPE_CHECKING:
    from reward.samples import ImageLike

__all__ = [
    "GarbledReply",
    "Sampled",
    "ServerSettings",
    "chat_messages",
    "check_answer",
    "data_url",
    "is_same_model",
    "read_bill",
    "read_choices",
    "read_reply",
    "request_key",
]

_PNG_PIXELS = 1_000_000
_ROUNDING = 0.01  # probabilities come from half precision too: single ones and sums may be a little above 1


@dataclass(frozen=True)
class ServerSettings:
    """Where and how to ask; see ServerJudge."""

    model: str
    base_url: str | None
    key_name: str
    concurrency: int
    timeout: float
    retries: int
    prices: tuple[float, float] | None
    extra_body: dict[str, Any]

    def key(self) -> str | None:
        """The API key, read where it lies: settings are printed and pickled."""
        return os.environ.get(self.key_name) or None


class GarbledReply(Exception):
    """A reply with status 200 that holds no answer: cut off, or sent by something between us and the server."""


@dataclass(frozen=True)
class Sampled:
    """A sampled answer.

    Args:
        text: without end marks.
        truncated: whether the limit of tokens cut it.
        logprob: natural logarithm of its probability, summed over its tokens; None where it is not known.
    """

    text: str
    truncated: bool = False
    logprob: float | None = None


def data_url(image: ImageLike) -> str:
    """An image as text: PNG, or JPEG of quality 95 where it has more than a million pixels.

    Raises:
        ImageError: it cannot be read.

    Example:
        >>> from PIL import Image
        >>> data_url(Image.new("RGB", (2, 2)))[:30]
        'data:image/png;base64,iVBORw0K'
    """
    picture = load_image(image)
    small = picture.width * picture.height <= _PNG_PIXELS
    encoded = BytesIO()
    if small:
        picture.save(encoded, "PNG")
    else:
        picture.save(encoded, "JPEG", quality=95)
    return f"data:image/{'png' if small else 'jpeg'};base64,{base64.b64encode(encoded.getvalue()).decode()}"


def chat_messages(question: Question, url: str | None, *, with_system: bool = True) -> list[dict[str, Any]]:
    """The conversation as the API wants it, with the image before the first text of the user; see `Question.turns`."""
    messages: list[dict[str, Any]] = []
    for role, text in question.turns(with_system=with_system):
        if role == "user" and url is not None:
            image = {"type": "image_url", "image_url": {"url": url}}
            messages.append({"role": role, "content": [image, {"type": "text", "text": text}]})
            url = None
        else:
            messages.append({"role": role, "content": text})
    return messages


def is_same_model(asked: str, told: str) -> bool:
    """Whether two names are of one model: they differ at most in case, in folders before it, or in a date or version.

    A name that is longer in other ways is another model's: a quantised or a smaller one.

    Example:
        >>> is_same_model("gpt-4o", "gpt-4o-2024-08-06"), is_same_model("gpt-4o", "gpt-4o-mini")
        (True, False)
    """
    short, long = sorted((asked.casefold(), told.casefold()), key=len)
    dated = re.fullmatch(re.escape(short) + r"(:latest|-latest|[-@]\d{3,4}(-?\d\d-?\d\d)?)", long)
    return short == long or long.endswith(f"/{short}") or dated is not None


def request_key(question: Question, image_key: str | None, settings: Mapping[str, Any]) -> str:
    """Hash of everything that decides the answer: texts, image, model and settings; nothing else goes in."""
    content = {"turns": question.turns(), "image": image_key, **settings}
    if question.temperature:
        content["sampled"] = [question.temperature, question.seed]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_reply(completion: Any, *, top: int) -> Answer:
    """The answer in a completion.

    Args:
        completion: what the client returned.
        top: number of alternatives asked for; 0 reads none.

    Raises:
        GarbledReply: it holds no choice, as when half of it is missing.
        UnusableReply: it is no answer (broken off, refused, reasoning alone), its tokens spell another text, or a value
            is not what it should be.
    """
    # The client checks no types: it passes on what came.
    try:
        choice = completion.choices[0]
        text, why_not = choice.message.content or "", _why_no_answer(choice)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise GarbledReply(f"the server's reply is not a chat completion ({error})") from None
    if why_not:
        raise UnusableReply(why_not)
    try:
        listed = (choice.logprobs.content or []) if top and choice.logprobs else []
        answer = Answer(
            text=text,
            tokens=tuple(position.token for position in listed),
            logprobs=tuple(_alternatives(position) for position in listed),
            truncated=choice.finish_reason == "length",
        )
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise UnusableReply(f"the log probabilities of the server's reply cannot be read ({error})") from None
    check_answer(answer)
    return _spelled(answer, [getattr(position, "bytes", None) for position in listed])


def read_choices(completion: Any, *, logprobs: bool) -> list[Sampled]:
    """All answers in a completion; those that are none, as `read_reply` has it, are left out.

    Args:
        completion: what the client returned.
        logprobs: whether their log probabilities were asked for, and must be there.

    Raises:
        GarbledReply: it holds no choice, as when half of it is missing.
        UnusableReply: no choice is an answer, a value is not what it should be, or there are no log probabilities.
    """
    try:
        every = list(completion.choices)
        reasons = [_why_no_answer(choice) for choice in every]
        whole = [choice for choice, why_not in zip(every, reasons, strict=True) if not why_not]
        choices = [(choice, choice.message.content or "", choice.finish_reason) for choice in whole]
    except (AttributeError, TypeError) as error:
        raise GarbledReply(f"the server's reply is not a chat completion ({error})") from None
    if not every:
        raise GarbledReply("the server's reply has no choice")
    if not choices:
        raise UnusableReply(str(reasons[0]))
    sampled = []
    for choice, text, reason in choices:
        check_answer(Answer(text))
        total = None
        if logprobs:
            listed = getattr(choice.logprobs, "content", None)
            if not listed:
                raise UnusableReply(
                    "the server gave no log probabilities: do not ask for them, or use another server (transformers "
                    "serve has none)"
                )
            for position in listed:
                _check_logprob(getattr(position, "logprob", None))
            total = math.fsum(position.logprob for position in listed)
        sampled.append(Sampled(text, reason == "length", total))
    return sampled


def _why_no_answer(choice: Any) -> str | None:
    """Why a choice of a completion is no answer: it did not end by itself or at the limit, or is no content."""
    message, reason = choice.message, choice.finish_reason
    if refusal := getattr(message, "refusal", None):
        return f"the model refuses to answer: {refusal!r:.120}"
    if reason not in ("stop", "length"):  # abort, content_filter, error, null: what is there is a part
        return f"the server's reply did not end, but was broken off (finish_reason is {reason!r:.40})"
    thoughts = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    if thoughts and not message.content:
        return (
            "the reply holds reasoning but no answer: turn reasoning off, as with "
            'extra_body={"chat_template_kwargs": {"enable_thinking": False}}, or raise max_new_tokens'
        )
    return None


def _spelled(answer: Answer, raw: Sequence[Any]) -> Answer:
    """An answer with the tokens that spell its text; those of reasoning, which some servers list first, are left out.

    White space and chat markers do not count. After the first character that is not ASCII nothing is compared, because
    a token may hold a part of such a character.

    Args:
        answer: with tokens, or without any.
        raw: the bytes of each token as the server tells them, or None.

    Raises:
        UnusableReply: the tokens spell another text.
    """
    if not answer.tokens:
        return answer
    try:
        pieces = [bytes(part) for part in raw] if None not in raw else [token.encode() for token in answer.tokens]
    except (TypeError, ValueError) as error:
        raise UnusableReply(f"the bytes of a token in the server's reply cannot be read ({error})") from None
    said, spelled = _compact(answer.text), _compact(b"".join(pieces).decode(errors="replace"))
    first_other = [place for text in (said, spelled) for place, character in enumerate(text) if not character.isascii()]
    compared = min(first_other, default=None)
    if said[:compared] == spelled[:compared]:
        return answer
    for start in range(len(pieces) - 1, 0, -1):
        rest = _compact(b"".join(pieces[start:]).decode(errors="replace"))
        if rest == said:
            return replace(answer, tokens=answer.tokens[start:], logprobs=answer.logprobs[start:])
        if len(rest) > len(said):
            break
    raise UnusableReply(f"the tokens of the server's reply spell {spelled!r:.40}, but its text is {said!r:.40}")


def _compact(text: str) -> str:
    """A text without white space, the marks that tokenizers use for it, and chat markers such as `<|im_end|>`."""
    return re.sub(r"<[|\uff5c/\w][^<>\s]*>|[\s\u2581\u0120\u010a]", "", text)


def _alternatives(position: Any) -> dict[str, float]:
    """{token text: log probability}; tokens of equal text, such as a digit and its byte, are added up.

    The token that was written is among them, also where the server does not list it.
    """
    listed = list(position.top_logprobs)
    if position.token not in [other.token for other in listed]:
        listed += [position] if getattr(position, "logprob", None) is not None else []
    logprobs: dict[str, float] = {}
    for other in listed:
        _check_logprob(other.logprob)
        lower, higher = sorted((logprobs.get(other.token, -math.inf), float(other.logprob)))
        logprobs[other.token] = higher + math.log1p(math.exp(lower - higher)) if lower > -math.inf else higher
    return logprobs


def check_answer(answer: Answer) -> None:
    """Raises UnusableReply unless an answer is one that can be read and kept.

    Texts must be strings, and log probabilities numbers that are not above 0 and add up to 1 at most.

    Example:
        >>> check_answer(Answer("5", ("5",), ({"5": 1e6},)))
        Traceback (most recent call last):
        reward.http_client.UnusableReply: the server's reply has the log probability 1000000.0
    """
    if not isinstance(answer.text, str):
        raise UnusableReply(f"the content of the server's reply must be text, got {type(answer.text).__name__}")
    if len(answer.tokens) != len(answer.logprobs):
        raise UnusableReply(
            f"the server's reply has {len(answer.tokens)} tokens but {len(answer.logprobs)} log probabilities"
        )
    for token, logprobs in zip(answer.tokens, answer.logprobs, strict=True):
        for text in (token, *logprobs):
            if not isinstance(text, str):
                raise UnusableReply(f"a token of the server's reply must be text, got {text!r:.40}")
        for value in logprobs.values():
            _check_logprob(value)
        total = math.fsum(map(math.exp, logprobs.values()))
        if total > 1 + _ROUNDING:
            raise UnusableReply(f"probabilities of one token in the server's reply add up to {total:.4g}")


def _check_logprob(value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not value <= _ROUNDING:  # NaN is not, either
        raise UnusableReply(f"the server's reply has the log probability {value!r:.40}")


def read_bill(completion: Any) -> tuple[int, int]:
    """Tokens read and tokens written, 0 where the server does not say, or says what is no number of tokens.

    A bill that cannot be read is no reason to throw away what was paid for.
    """
    usage = getattr(completion, "usage", None)
    counts = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
    read, written = (count if type(count) is int and count >= 0 else 0 for count in counts)
    return read, written
