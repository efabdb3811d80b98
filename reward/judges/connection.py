"""The way to an OpenAI-compatible server: a question is sent until it is answered or refused, or the server is down."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from uuid import uuid4

import openai

from reward.errors import ImageError, JudgeError
from reward.http_client import GarbledReply, UnusableReply, backoff, printable, retry_after, whole_reply
from reward.judges.base import Answer, Question
from reward.judges.chat import (
    OddProbabilities,
    Refused,
    Stopped,
    chat_messages,
    data_url,
    is_same_model,
    read_bill,
    read_reply,
    reply_of_stream,
)

logger = logging.getLogger(__name__)

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0  # seconds between tries: doubled each time, up to the longest
_MOST_PATIENCE = 900.0  # a server may ask for a longer wait than ours, but not for hours
_PATIENCE_AT_FIRST = 15.0  # seconds until a server that does not even list its models counts as absent
_PATIENCE_WITH_LOADING = 120.0  # seconds for a server that is there but says that it is not ready
_URLS_KEPT = 16
_PROBE = "This is a test. " * 25  # each word is at least one token
_LEAST_LOST = 75  # tokens: more than the system message that some templates make up where none is given
_TRIES_OF_PROBABILITIES = 3  # of a reply whose log probabilities cannot be used
_TOLD_WAIT = 10.0  # seconds: a longer wait is a warning
_FEWER_ALTERNATIVES = 5  # asked for, where a server that allows fewer than we want does not say how many
T = TypeVar("T")


class Unanswered(JudgeError):
    """This question was not answered. Where others are, it is the question's failure, and else the server's."""


class _Client(openai.DefaultHttpxClient):
    """The OpenAI client's own connection; a reply that is too large once unpacked, or never ends, is given up."""

    seconds = 60.0

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Sends a request and reads the whole reply: the client's own time limit is for each part of one."""
        return whole_reply(super().send(request, stream=True, **options), self.seconds)


@dataclass(eq=False)
class Connection:
    """A server, for any number of threads; see `ServerJudge` for the settings.

    Args:
        keeps: whether answers are kept, for messages.
        count: is told the questions answered, and the tokens read and written.
    """

    model: str
    base_url: str | None
    key_name: str
    concurrency: int
    timeout: float
    retries: int
    extra_body: Mapping[str, Any]
    keeps: bool
    count: Callable[..., None]

    def __post_init__(self) -> None:
        self._key = os.environ.get(self.key_name) or None
        # A redirect would send the question and its picture to another host, and no proxy can reach our own machine.
        host = urlsplit(self.base_url or os.environ.get("OPENAI_BASE_URL") or "").hostname or ""
        is_here = host in ("localhost", "::1") or host.startswith("127.")
        client = _Client(follow_redirects=False, trust_env=not is_here)
        client.seconds = self.timeout
        self._client = openai.OpenAI(
            api_key=self._key or "none",  # the client requires one, even for a server without keys
            base_url=self.base_url,
            timeout=self.timeout,
            max_retries=0,  # our retries also cover garbled replies, and end when the server is down
            http_client=client,
        )
        self.address = str(self._client.base_url)
        self._place = self.base_url or "the default address"
        self._free = threading.BoundedSemaphore(self.concurrency)
        self._urls: dict[str | None, str] = {}
        self._probing = threading.Lock()
        self._hears_system: bool | None = True if self.base_url is None else None  # OpenAI's own does
        self._length_field = "max_tokens"
        self._most_alternatives = 1_000  # until the server says that it allows fewer
        self._has_probabilities = False  # whether any reply had log probabilities
        self._told: set[str] = set()  # other models that answered

    def close(self) -> None:
        """Closes it for good."""
        self._client.close()

    def ask(
        self, question: Question, image_key: str | None, fields: dict[str, Any], top: int | None, stop: threading.Event
    ) -> list[Answer]:
        """What the server answers, with log probabilities of the tokens and of `top` others, or without any.

        Args:
            image_key: of the question's image.
            fields: of the request; an answer in each choice that it has.
            top: 0 for the tokens alone, None for no log probabilities.
            stop: ends the waiting between tries.

        Raises:
            Refused: this question will not be answered.
            Stopped: `stop` was set.
            JudgeError: the server is down, or refuses us.
        """
        with_system = question.system is None or self._takes_system(stop)
        messages = chat_messages(question, self._url(question, image_key), with_system=with_system)
        request = {**fields, "messages": messages}
        if top is not None:
            request |= {"logprobs": True, **({"top_logprobs": top} if top else {})}
        answers = self._complete(request, lambda reply: self._read(reply, top), stop)
        self.count(answered=1)
        if top is not None and not all(answer.logprobs for answer in answers):
            raise Refused(
                "the server gave no log probabilities; start it with them (vLLM: --max-logprobs 20), or use a server "
                "and a model that have them (transformers serve has none)"
            )
        return answers

    def _read(self, reply: Any, top: int | None) -> list[Answer]:
        """The answers in a reply. Once the server has given log probabilities, a reply without them is asked again."""
        answers = read_reply(reply, top=top)
        if top is not None:
            has_probabilities = all(answer.logprobs for answer in answers)
            if self._has_probabilities and not has_probabilities:
                raise OddProbabilities("the server gave no log probabilities with this reply, but with others")
            self._has_probabilities |= has_probabilities
        return answers

    def models(self) -> list[str]:
        """The models that the server lists, none if it keeps no list. Waits while it says that it is not ready (503).

        Raises:
            JudgeError: no server is there, it is still not ready, or it refuses the key.
        """
        client = self._client.with_options(timeout=min(_PATIENCE_AT_FIRST, self.timeout))
        until = time.monotonic() + _PATIENCE_WITH_LOADING
        while True:
            try:
                listed: Any = client.get("/models", cast_to=object)
                return [str(model["id"]) for model in listed["data"]]
            except openai.APIConnectionError as error:
                advice = "Start it, or check the address, which mostly ends in /v1"
                problem = f"no server can be asked at {self._place}: {self._reason(error)}. {advice}"
                break
            except openai.APIStatusError as error:
                if error.status_code in (401, 403):
                    problem = f"the server refuses the key in ${self.key_name} ({self._reason(error)})"
                    break
                if error.status_code != 503:  # llama.cpp's while it loads the model
                    return []
                problem = f"the server at {self._place} is not ready ({self._reason(error)}); run again when it is"
            except (openai.APIError, UnusableReply, LookupError, TypeError, ValueError):  # a page, not a list
                return []
            if time.monotonic() > until:
                break
            logger.info("waiting: %s", problem)
            time.sleep(_FIRST_WAIT)
        raise JudgeError(problem)  # outside of `except`, as in `_complete`

    def _complete(self, request: dict[str, Any], read: Callable[[Any], T], stop: threading.Event) -> T:
        """What `read` makes of the server's reply; see `ask`."""
        request = {"model": self.model, **request, **self.extra_body}
        for attempt in range(self.retries + 1):
            if stop.is_set():
                raise Stopped
            problem: Exception
            try:
                with self._free:
                    reply = self._post(request)
                if isinstance(reply, str):
                    reply = reply_of_stream(reply)
                if not isinstance(reply, dict):
                    raise GarbledReply("the server's reply is not a chat completion")
                answer = read(reply)
            except OddProbabilities as error:
                if attempt + 1 >= min(self.retries + 1, _TRIES_OF_PROBABILITIES):
                    raise Refused(str(error)) from None
                problem = GarbledReply(str(error))
            except UnusableReply as error:
                raise Refused(str(error)) from None
            except (openai.APIError, GarbledReply, ValueError, RecursionError) as error:  # the last two: broken JSON
                cause = error.__cause__  # the client before 3.0 takes what `_Client` raises for a lost connection
                if isinstance(cause, UnusableReply):
                    raise Refused(str(cause)) from None
                problem = cause if isinstance(cause, GarbledReply) else error
            else:
                self.count(bill=read_bill(reply))
                self._compare_names(reply.get("model"))
                return answer
            # Outside of `except`, so that the client's error, which holds the request and its key, is not chained.
            wait = max(self._least_wait(problem), backoff(attempt, first=_FIRST_WAIT, longest=_LONGEST_WAIT))
            if attempt < self.retries:
                level = logging.WARNING if wait > _TOLD_WAIT else logging.INFO
                logger.log(level, "asking %s again in %.1f s: %s", self.model, wait, self._reason(problem))
                stop.wait(wait)
        kept = "kept; run again to go on"
        lost = "lost; give `cache` a file, so that the next run goes on from here"
        message = (
            f"the server of {self.model!r} did not answer in {attempt + 1} tries, last: {self._reason(problem)}. "
            f"Answers so far are {kept if self.keeps else lost}"
        )
        if isinstance(problem, openai.APIConnectionError) and not isinstance(problem, openai.APITimeoutError):
            raise JudgeError(message)  # nobody is there
        raise Unanswered(message)

    def _post(self, request: dict[str, Any]) -> Any:
        """One request, in the words that the server takes, which are kept from then on.

        Newer servers refuse `max_tokens` for `max_completion_tokens`, and some allow fewer alternatives.
        """
        while True:
            worded = dict(request)
            if "max_tokens" in worded:
                worded[self._length_field] = worded.pop("max_tokens")
            if "top_logprobs" in worded:
                worded["top_logprobs"] = min(worded["top_logprobs"], self._most_alternatives)
            try:
                return self._client.post("/chat/completions", cast_to=object, body=worded)
            except openai.BadRequestError as error:
                message = str(error)
                if "max_tokens" in worded and "max_tokens" in message:
                    self._length_field = "max_completion_tokens"
                elif "logprobs" in message and worded.get("top_logprobs", 0) > _FEWER_ALTERNATIVES:
                    self._most_alternatives = _allowed_alternatives(message, worded["top_logprobs"])
                else:
                    raise

    def _url(self, question: Question, image_key: str | None) -> str | None:
        """The question's image as text; those of the last images are kept for other questions about them."""
        if question.image is None:
            return None
        try:
            url = self._urls.get(image_key) or data_url(question.image)
        except ImageError as error:
            raise Refused(str(error)) from None
        self._urls = dict([*self._urls.items(), (image_key, url)][-_URLS_KEPT:])
        return url

    def _takes_system(self, stop: threading.Event) -> bool:
        """Whether system messages arrive. Some chat templates drop them without a word, some refuse them.

        A text is sent once in the user's turn and once as a system message: where it arrives, the server counts as many
        tokens. True also where it does not count.
        """
        with self._probing:
            if self._hears_system is None:
                said, heard = (self._tokens_of_probe(with_system, stop) for with_system in (False, True))
                self._hears_system = heard is not None and (said or 0) - heard < _LEAST_LOST
            return self._hears_system

    def _tokens_of_probe(self, with_system: bool, stop: threading.Event) -> int | None:
        """How many tokens the server read, None where it refuses to answer."""
        # A beginning of its own: a server may leave out of the bill what it still has from an earlier request.
        probe = f"{uuid4().hex} {_PROBE}"
        messages = chat_messages(Question("Hello.", system=probe), None, with_system=with_system)
        request = {"max_tokens": 1, "temperature": 0.0, "messages": messages}
        try:
            return self._complete(request, lambda reply: read_bill(reply)[0], stop)
        except Refused:
            return None

    def _least_wait(self, problem: Exception) -> float:
        """Seconds that must pass before another try; raises if another try is of no use."""
        if not isinstance(problem, openai.APIStatusError):
            return 0.0
        status, reason = problem.status_code, self._reason(problem)
        if status == 401:
            raise JudgeError(f"the server refuses the key in ${self.key_name} ({reason})")
        if status == 402 or problem.code == "insufficient_quota":
            raise JudgeError(f"the account of the key in ${self.key_name} is used up ({reason})")
        if status == 403:
            raise Unanswered(f"the server refuses the key in ${self.key_name}, or the question ({reason})")
        if status == 404:
            raise Unanswered(
                f"no model {self.model!r} at {self._place} ({reason}); check the model's "
                "name, and that base_url ends as the server wants it, mostly with /v1"
            )
        if 300 <= status < 400:
            target = printable(problem.response.headers.get("location", "another address"), self._key)
            raise JudgeError(f"the server at {self._place} sends us on to {target}; give that address as base_url")
        if status < 500 and status not in (408, 409, 429):
            advice = ""
            if "temperature" in reason:
                advice = '; say how it is to sample, as in extra_body={"temperature": 1}'
            raise Refused(f"the server refuses the question ({reason}){advice}")
        wait = retry_after(problem.response.headers)
        if wait > _MOST_PATIENCE:
            raise JudgeError(f"the server wants us to wait {wait:.0f} s ({reason}); run again then")
        return wait

    def _proxy(self) -> str | None:
        """The proxy that requests take, without its user and password; None where they take none."""
        url = urlsplit(self.address)
        if not self._client._client.trust_env or proxy_bypass(url.hostname or ""):
            return None
        proxies = getproxies()
        proxy = proxies.get(url.scheme) or proxies.get("all")
        return None if proxy is None else proxy.rpartition("@")[2]

    def _reason(self, problem: Exception) -> str:
        """What went wrong, in one line and without the key, which some servers repeat in their messages."""
        text = str(problem)
        if isinstance(problem, openai.APITimeoutError):
            text = f"no answer within {self.timeout:g} s"
        elif isinstance(problem, openai.APIConnectionError):
            proxy = self._proxy()
            way = f" by the proxy {proxy}" if proxy else ""
            text = f"no connection{way} ({problem.__cause__ or problem})"
        elif isinstance(problem, openai.APIStatusError):
            # where FastAPI's servers say why, which the client leaves out of its message
            detail = problem.body.get("detail") if isinstance(problem.body, dict) else None
            text += f" - {detail}" if detail and str(detail) not in text else ""
        elif not isinstance(problem, openai.APIError | GarbledReply):
            text = f"the reply is cut off ({problem})"
        return printable(text, self._key)

    def _compare_names(self, told: Any) -> None:
        """Warns of each other model that answers, once."""
        told = printable(str(told or ""), self._key)
        if not told or told in self._told or is_same_model(self.model, told):
            return
        self._told.add(told)
        logger.warning(
            "%r was asked for, and %r answers, by its own word: check that it is the model you mean. llama.cpp answers "
            "whatever name it is asked for.",
            self.model,
            told,
        )


def _allowed_alternatives(message: str, wanted: int) -> int:
    """How many alternatives a server allows, by the message with which it refuses more."""
    numbers = [int(number) for number in re.findall(r"\b\d{1,2}\b", message)]
    return max([number for number in numbers if 1 < number < wanted], default=_FEWER_ALTERNATIVES)
