"""One question as a chat completion of an OpenAI-compatible server: what is sent, and how a reply is read."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.data.images import load_image
from reward.errors import JudgeError
from reward.http_client import GarbledReply, UnusableReply
from reward.judges.base import Answer, Question
from reward.judges.replies import spelled_letters

if TYPE_CHECKING:
    from reward.data.samples import ImageLike

MOST_ALTERNATIVES = 20  # of a token, as the API allows
_MOST_PNG_PIXELS = 1_000_000  # of an image; a larger PNG takes longer to send than a model takes to answer
_ENDED = ("stop", "eos", "eos_token", "end_turn", "stop_sequence")  # how servers say that a reply ended by itself
_CUT_SHORT = ("length", "max_tokens")
_NEVER = -1000.0  # log probability of a token that cannot be drawn
_ROUNDING = 0.01  # probabilities come from half precision too: single ones and sums may be a little above 1


class QuestionRefused(Exception):
    """This question will never be answered, but others may be."""


class Unanswered(JudgeError):
    """This question was not answered, by its own fault or the server's; if others are answered, by its own."""


class OddProbabilities(UnusableReply):
    """Log probabilities that cannot be used; another reply may have better ones."""


class MissingProbabilities(OddProbabilities):
    """A reply without log probabilities, which were asked for."""


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

    @classmethod
    def of(cls, answer: Answer) -> Sampled:
        """An answer whose log probabilities, if it has any, are those of the tokens written."""
        total = math.fsum(logs[token] for token, logs in zip(answer.tokens, answer.logprobs, strict=True))
        return cls(answer.text, answer.truncated, total if answer.tokens else None)


@dataclass(frozen=True, eq=False)
class ChatRequest:
    """What a server is asked.

    Args:
        question: the conversation.
        image_key: content hash of its image.
        fields: of the request, such as `max_tokens`.
        top: how many alternatives of each token; 0 for the tokens alone, None for no log probabilities.
        check: says why the log probabilities of an answer cannot be used, None where they can.
    """

    question: Question
    image_key: str | None
    fields: Mapping[str, Any]
    top: int | None = None
    check: Callable[[Answer], str | None] = lambda answer: None


def data_url(image: ImageLike) -> str:
    """An image as text: PNG, or JPEG of quality 95 where it has more than a million pixels.

    Raises:
        ImageError: it cannot be read.
    """
    picture = load_image(image)
    encoded = BytesIO()
    if picture.width * picture.height <= _MOST_PNG_PIXELS:
        kind = "png"
        picture.save(encoded, kind)
    else:
        kind = "jpeg"
        picture.save(encoded, kind, quality=95)
    return f"data:image/{kind};base64,{base64.b64encode(encoded.getvalue()).decode()}"


def chat_messages(question: Question, url: str | None, *, with_system: bool = True) -> list[dict[str, Any]]:
    """The conversation as the API wants it, with the image before the first text of the user; see `Question.turns`."""
    messages: list[dict[str, Any]] = []
    for role, text in question.turns(with_system=with_system):
        messages.append({"role": role, "content": text})
    # The image comes first: servers compute a shared beginning once for all questions about it.
    if url is not None:
        first = next(message for message in messages if message["role"] == "user")
        image = {"type": "image_url", "image_url": {"url": url}}
        first["content"] = [image, {"type": "text", "text": first["content"]}]
    return messages


def request_key(question: Question, image_key: str | None, settings: Mapping[str, Any]) -> str:
    """Hash of everything that decides the answer: texts, image, model and settings; nothing else goes in."""
    # The seed changes sampled answers alone; the time limit and the number of tries change none, and are left out.
    content = {"turns": question.turns(), "image": image_key, **settings}
    if question.temperature:
        content["sampled"] = [question.temperature, question.seed]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_reply(reply: Any, *, top: int | None) -> list[Answer]:
    """The answers in a completion. A choice that was broken off or refused, or is reasoning alone, is left out.

    Args:
        reply: a completion; its fields may hold anything.
        top: alternatives of each token that were asked for; None without log probabilities.

    Raises:
        GarbledReply: it holds no choice, as when half of it is missing: the question is asked again.
        UnusableReply: no choice is an answer, its tokens spell another text, or a value is not what it should be: the
            same would come again.
    """
    if not isinstance(reply, dict):
        raise GarbledReply("the server's reply is not a chat completion")
    if reply.get("error") and not reply.get("choices"):
        raise GarbledReply(f"the server's reply is an error: {reply['error']!r:.200}")
    try:
        choices = list(reply["choices"])
        problems = [_why_no_answer(choice) for choice in choices]
    except (AttributeError, KeyError, TypeError) as error:
        raise GarbledReply(f"the server's reply is not a chat completion ({error!r:.80})") from None
    if not choices:
        raise GarbledReply("the server's reply has no choice")
    answers = []
    for choice, problem in zip(choices, problems, strict=True):
        if problem is None:
            answers.append(_read_choice(choice, top))
    if not answers:
        raise UnusableReply(str(problems[0]))
    return answers


def _why_no_answer(choice: dict[str, Any]) -> str | None:
    """Why a choice of a completion is no answer (refused, broken off, or reasoning alone); None if it is one."""
    message = choice["message"]
    reason = choice.get("finish_reason")
    refusal = message.get("refusal")
    if refusal:
        return f"the model refuses to answer: {refusal!r:.120}"
    # With any other reason (abort, content_filter, error, null), the text is a part of what would have come.
    if str(reason).casefold() not in (*_ENDED, *_CUT_SHORT):
        return f"the server's reply did not end, but was broken off (finish_reason is {reason!r:.40})"
    if not _text_of(message) and (message.get("reasoning_content") or message.get("reasoning")):
        return (
            "the reply holds reasoning but no answer: turn reasoning off, as with "
            'extra_body={"chat_template_kwargs": {"enable_thinking": False}}, or raise max_new_tokens'
        )
    return None


def _text_of(message: dict[str, Any]) -> Any:
    """The text of a message, whose content may be one or several parts."""
    content = message.get("content") or ""
    if not isinstance(content, list):
        return content
    texts = [part.get("text") or "" for part in content if part.get("type", "text") in ("text", "output_text")]
    return "".join(texts)


def _read_choice(choice: dict[str, Any], top: int | None) -> Answer:
    """The answer in a choice that holds one."""
    text = _text_of(choice["message"])
    if not isinstance(text, str):
        raise UnusableReply(f"the content of the server's reply must be text, got {type(text).__name__}")
    try:
        positions = (choice.get("logprobs") or {}).get("content") or []
        if top is None:  # some servers send them unasked
            positions = []
        tokens = tuple(position["token"] for position in positions)
        listed = [_listed_tokens(position, bool(top)) for position in positions]
        logprobs = tuple(map(_added_up, listed))
        spellings = _spellings(positions)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise OddProbabilities(f"the log probabilities of the server's reply cannot be read ({error})") from None
    answer = Answer(text, tokens, logprobs, truncated=choice["finish_reason"].casefold() in _CUT_SHORT)
    if not tokens:
        return answer
    # One alternative alone would be the written token, which tells nothing of the others.
    if top is not None and top > 1:
        if max(map(len, listed)) < 2:
            raise OddProbabilities(f"the server lists no alternatives of its tokens, of {top} that were asked for")
        if all(_is_one_hot(alternatives) for alternatives in logprobs):
            raise OddProbabilities("the server's log probabilities are those after sampling: all but one are 0")
    return _aligned(answer, spellings)


def _listed_tokens(position: dict[str, Any], has_alternatives: bool) -> list[tuple[str, float]]:
    """(token text, log probability) of the alternatives at one position, and of the token that was written there.

    Args:
        position: an entry of `logprobs.content`. The written token need not be among its alternatives.
        has_alternatives: whether alternatives were asked for.
    """
    pairs: list[tuple[str, float]] = []
    if has_alternatives:
        for alternative in position["top_logprobs"]:
            pairs.append((alternative["token"], alternative["logprob"]))
    token = position["token"]
    is_listed = token in [text for text, _ in pairs]
    if not is_listed and position.get("logprob") is not None:
        pairs.append((token, position["logprob"]))
    return pairs


def _added_up(pairs: Sequence[tuple[str, float]]) -> dict[str, float]:
    """{token text: log probability}; tokens of equal text, such as a digit and its byte, are added up."""
    logprobs: dict[str, float] = {}
    for text, logprob in pairs:
        if not isinstance(text, str):
            raise UnusableReply(f"a token of the server's reply must be text, got {text!r:.40}")
        is_number = isinstance(logprob, int | float) and not isinstance(logprob, bool)
        # NaN is not at most anything, and so is refused, too.
        if not (is_number and logprob <= _ROUNDING):
            raise OddProbabilities(f"the server's reply has the log probability {logprob!r:.40}")
        # Probabilities are added as logarithms, since very small ones would become 0.
        logprobs[text] = float(np.logaddexp(logprobs.get(text, -math.inf), logprob))
    total = math.fsum(map(math.exp, logprobs.values()))
    if total > 1 + _ROUNDING:
        raise UnusableReply(f"probabilities of one token in the server's reply add up to {total:.4g}")
    return logprobs


def _spellings(positions: Sequence[dict[str, Any]]) -> list[str]:
    """The text of each token, from its bytes where the server gives those of all."""
    # A token may be half a character, for which its text has a stand-in; the bytes are exact.
    codes: list[Any] = [position.get("bytes") for position in positions]
    if None in codes:
        return [position["token"] for position in positions]
    return [bytes(code).decode(errors="ignore") for code in codes]


def _is_one_hot(logprobs: Mapping[str, float]) -> bool:
    """Whether all tokens but one cannot be drawn, as in the probabilities after greedy sampling."""
    possible = [logprob for logprob in logprobs.values() if logprob > _NEVER]
    return len(logprobs) > 1 and len(possible) == 1


def _aligned(answer: Answer, spellings: Sequence[str]) -> Answer:
    """An answer with the tokens that spell its text; those of reasoning, which some servers list first, are left out.

    Raises:
        UnusableReply: the tokens spell another text.
    """
    text = spelled_letters(answer.text)
    if not text or spelled_letters("".join(spellings)) == text:
        return answer
    # Reasoning stands before the answer, so the answer's tokens are looked for from the end.
    for start in range(len(spellings) - 1, 0, -1):
        rest = spelled_letters("".join(spellings[start:]))
        if rest == text:
            return replace(answer, tokens=answer.tokens[start:], logprobs=answer.logprobs[start:])
        if len(rest) > len(text):
            break
    spelled = "".join(spellings)
    raise UnusableReply(f"the tokens of the server's reply spell {spelled!r:.40}, but its text is {answer.text!r:.40}")


def read_bill(reply: dict[str, Any]) -> tuple[int, int]:
    """Number of tokens that the server read, and of those that it wrote; 0 where it gives no such number."""
    usage = reply.get("usage")
    if not isinstance(usage, dict):
        return 0, 0
    return _token_count(usage, "prompt_tokens"), _token_count(usage, "completion_tokens")


def _token_count(usage: dict[str, Any], name: str) -> int:
    count = usage.get(name)
    if type(count) is int and count >= 0:
        return count
    return 0
