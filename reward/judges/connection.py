"""A server of models that answer: each question is asked until it is answered or refused, or the server is down."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import openai

from reward.errors import ImageError, JudgeError
from reward.http_client import GarbledReply, UnusableReply, backoff, printable, retry_after, whole_reply
from reward.judges.asking import Stopped
from reward.judges.base import PROBABILITIES, TEXT, Answer, NoProbabilities, Question
from reward.judges.chat import (
    MOST_ALTERNATIVES,
    ChatRequest,
    MissingProbabilities,
    OddProbabilities,
    QuestionRefused,
    Unanswered,
    chat_messages,
    data_url,
    read_bill,
    read_reply,
)

if TYPE_CHECKING:
    from reward.judges.server import ServerJudge

logger = logging.getLogger(__name__)

_CHATS = "/chat/completions"
_FIRST_WAIT = 0.5  # seconds between two tries: doubled each time
_LONGEST_WAIT = 60.0  # seconds between two tries, at most
_LONGEST_WHILE_ABSENT = 15.0  # seconds between tries while nobody is there, who may come back at any time
_MOST_PATIENCE = 900.0  # seconds: a server may ask for a longer wait than ours, but not for hours
_QUIET_WAIT = 10.0  # seconds: a longer wait is a warning
_LISTING_TIMEOUT = 15.0  # seconds until a server that does not even list its models counts as absent
_URLS_KEPT = 16
_FEW_ALTERNATIVES = 5  # what a server that allows fewer than we want allows at least
_TRIES_OF_PROBABILITIES = 3  # of a reply whose log probabilities cannot be used
_PROBE = "This is a test. " * 25  # each word is at least one token
_LEAST_LOST = 75  # tokens: more than the system message that some templates make up where none is given
_NO_PROBABILITIES = (
    "the server gave no log probabilities; start it with them (vLLM: --max-logprobs 20), or use a server and a model "
    "that have them (transformers serve has none)"
)
T = TypeVar("T")


class _Client(openai.DefaultHttpxClient):
    """The OpenAI client's own connection; a reply that is too large once unpacked, or never ends, is given up."""

    seconds = 60.0

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Sends a request and reads the whole reply: the client's own time limit is for each part of one."""
        return whole_reply(super().send(request, stream=True, **options), self.seconds)


class Connection:
    """A server that is asked in any number of threads, with the key that only this object holds.

    Args:
        judge: has the settings; is told of questions that are answered, of their price, and how answers are read.

    Attributes:
        client: of the package openai.
        address: where requests go.
        endpoint: the address without user and password, for messages.
    """

    def __init__(self, judge: ServerJudge) -> None:
        self._judge = judge
        self._key = os.environ.get(judge.key_name) or None
        host = urlsplit(judge.base_url or os.environ.get("OPENAI_BASE_URL") or "").hostname or ""
        is_here = host in ("localhost", "::1") or host.startswith("127.")
        # A redirect would send the question and its picture to another host, and no proxy can reach our own machine.
        client = _Client(follow_redirects=False, trust_env=not is_here)
        client.seconds = judge.timeout
        self.client = openai.OpenAI(
            api_key=self._key or "none",  # the client requires one, even for a server without keys
            base_url=judge.base_url,
            timeout=judge.timeout,
            max_retries=0,  # our retries also cover garbled replies, and end when the server is down
            http_client=client,
        )
        self.address = str(self.client.base_url)
        # The address may come from the environment, with a user and a password.
        parts = urlsplit(self.address)
        self.endpoint = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._free = threading.BoundedSemaphore(judge.concurrency)
        self._urls: dict[str | None, str] = {}
        self._length_field = "max_tokens"
        self._most_alternatives = MOST_ALTERNATIVES  # until the server says that it allows fewer
        self._probing = threading.Lock()
        self._hears_system: bool | None = None
        if judge.base_url is None:  # OpenAI's own does
            self._hears_system = True
        self._quiet_until = 0.0  # on the clock of `time.monotonic`: waits before are no warnings

    def ask(self, request: ChatRequest, stop: threading.Event) -> list[Answer]:
        """The answers in the choices of the server's reply.

        Args:
            request: what is asked.
            stop: ends the waiting between tries.

        Raises:
            QuestionRefused: this question will not be answered.
            Unanswered: it was not answered in all tries.
            Stopped: `stop` was set.
            NoProbabilities: the server gives none, or an earlier call has settled that what is written is read.
            JudgeError: the server is down, or refuses us.
        """
        question = request.question
        subject = f"{question.text[:60]!r}..."
        with_system = question.system is None or self._takes_system(stop, subject)
        messages = chat_messages(question, self._url(question, request.image_key), with_system=with_system)
        fields = {**request.fields, "messages": messages}
        if request.top is not None:
            fields["logprobs"] = True
        if request.top:
            fields["top_logprobs"] = request.top
        answers = self._complete(fields, lambda reply: self._read(reply, request), stop, subject)
        self._judge.count(answered=1)
        return answers

    def post(self, url: str, fields: dict[str, Any], read: Callable[[Any], T], stop: threading.Event) -> T:
        """What `read` makes of the reply of another endpoint, see `ServerJudge.post`; raises as `ask` does."""
        result = self._complete(fields, read, stop, url, url)
        self._judge.count(answered=1)
        return result

    def models(self) -> list[str]:
        """See `ServerJudge.models`."""
        client = self.client.with_options(timeout=min(_LISTING_TIMEOUT, self._judge.timeout))
        try:
            reply: Any = client.get("/models", cast_to=object)
            return [str(model["id"]) for model in reply["data"]]
        except openai.APIConnectionError as error:
            advice = "start it, or check the address, as in http://localhost:8000/v1#MODEL"
            problem = f"no server can be asked at {self.endpoint}: {self._reason(error)}; {advice}"
        except openai.APIStatusError as error:
            problem = ""
            if error.status_code in (401, 403):
                problem = f"the server refuses the key in ${self._judge.key_name} ({self._reason(error)})"
            if error.status_code == 503:  # llama.cpp's while it loads the model
                problem = f"the server at {self.endpoint} is not ready ({self._reason(error)}); run again when it is"
        except (openai.APIError, UnusableReply, LookupError, TypeError, ValueError):  # a page, not a list
            problem = ""
        # Outside of `except`: the client's error, which holds the key, must not be chained.
        if problem:
            raise JudgeError(problem)
        return []

    def _read(self, reply: Any, request: ChatRequest) -> list[Answer]:
        """The answers in a reply, in the way of reading that the first replies have settled."""
        if request.top is None:
            return read_reply(reply, top=None)
        answers = read_reply(reply, top=request.top)
        for answer in answers:
            if not answer.logprobs and not answer.text.strip():  # which has no tokens to tell of
                raise UnusableReply("the server's reply is empty")
            if not answer.logprobs:
                raise MissingProbabilities(
                    "the server gave this reply without the probabilities of its tokens, which others had"
                )
            problem = request.check(answer)
            if problem is not None:
                raise OddProbabilities(problem)
        if self._judge.settle(PROBABILITIES) != PROBABILITIES:
            raise NoProbabilities(_NO_PROBABILITIES)
        return answers

    def _complete(
        self,
        fields: dict[str, Any],
        read: Callable[[Any], T],
        stop: threading.Event,
        subject: str,
        url: str = _CHATS,
    ) -> T:
        """What `read` makes of the server's reply; see `ask`.

        A question is tried again as often as `retries` says. Where nobody is there, it is tried until `patience` is
        over, too: a server that restarts is back in minutes, and a training run is not lost for that.
        """
        judge = self._judge
        began = time.monotonic()
        odd_replies = 0
        for attempt in itertools.count():
            if stop.is_set():
                raise Stopped
            result = self._try(url, fields, read)
            if not isinstance(result, Exception):
                return result
            odd_replies += isinstance(result, OddProbabilities)
            self._check_hope(result, odd_replies)
            reason = self._reason(result)
            longest = _LONGEST_WHILE_ABSENT if is_absent(result) else _LONGEST_WAIT
            wait = max(requested_wait(result), backoff(attempt, first=_FIRST_WAIT, longest=longest))
            seconds = time.monotonic() - began
            is_patient = is_absent(result) and seconds + wait < (judge.patience or 0.0)
            # Of these `_check_hope` counts the tries, whatever `retries` says.
            lacks_probabilities = isinstance(result, MissingProbabilities)
            if attempt >= judge.retries and not is_patient and not lacks_probabilities:
                break
            self._report_wait(subject, wait, seconds, reason)
            stop.wait(wait)
        fate = ". Answers so far are lost; give `cache` a file, so that the next run goes on from here"
        if url != _CHATS:  # other answers are not kept
            fate = ""
        elif judge.cache is not None:
            fate = ". Answers so far are kept; run again to go on"
        server = f"the server of {judge.name!r} at {self.endpoint}"
        message = f"{server} did not answer in {attempt + 1} tries, last: {reason}{fate}"
        if isinstance(result, openai.APIConnectionError) and not isinstance(result, openai.APITimeoutError):
            raise JudgeError(message)  # nobody is there
        raise Unanswered(message)

    def _try(self, url: str, fields: dict[str, Any], read: Callable[[Any], T]) -> T | Exception:
        """What `read` makes of the reply to one request, or why there is none.

        The reason is returned, so that what is raised of it does not hold the client's error with request and key.
        """
        try:
            with self._free:
                reply = self._post(url, fields)
            if isinstance(reply, str):  # JSON that a server calls a text
                reply = json.loads(reply)
            answer = read(reply)
        except (openai.APIError, UnusableReply, GarbledReply, ValueError, RecursionError) as error:
            # The last two are of broken JSON. The client before 3.0 takes what is raised while it reads a reply for a
            # lost connection.
            if isinstance(error.__cause__, (UnusableReply, GarbledReply)):
                return error.__cause__
            return error
        self._judge.count(bill=read_bill(reply))
        return answer

    def _check_hope(self, problem: Exception, odd_replies: int) -> None:
        """Raises if another try is of no use.

        That is JudgeError where all questions will be refused, QuestionRefused where this one will be, Unanswered where
        it may be either.

        Args:
            problem: of the last try.
            odd_replies: replies to this question whose probabilities could not be used.
        """
        reason = self._reason(problem)
        if isinstance(problem, openai.APIStatusError):
            self._check_status(problem, reason)
        if isinstance(problem, MissingProbabilities):
            is_last = odd_replies >= _TRIES_OF_PROBABILITIES
            if is_last and self._judge.settle(TEXT) == TEXT:
                raise NoProbabilities(_NO_PROBABILITIES)
        elif isinstance(problem, OddProbabilities):
            is_last = odd_replies >= _TRIES_OF_PROBABILITIES or odd_replies > self._judge.retries
        else:
            is_last = isinstance(problem, UnusableReply)
        if is_last:
            raise QuestionRefused(reason)

    def _check_status(self, problem: openai.APIStatusError, reason: str) -> None:
        """Raises what a status says of other tries, see `_check_hope`."""
        status = problem.status_code
        key = f"the key in ${self._judge.key_name}"
        if status == 401:
            raise JudgeError(f"the server refuses {key} ({reason})")
        if status == 402 or problem.code == "insufficient_quota":
            raise JudgeError(f"the account of {key} is used up ({reason})")
        if status == 403:
            raise Unanswered(f"the server refuses {key}, or the question ({reason})")
        if status == 404:
            advice = "check the model's name, and that base_url ends as the server wants it, mostly with /v1"
            path = problem.request.url.path
            if not path.endswith(_CHATS):
                advice = f"check the model's name, and that the server has {path}"
            raise Unanswered(f"no model {self._judge.model!r} at {self.endpoint} ({reason}); {advice}")
        if 300 <= status < 400:
            target = printable(problem.response.headers.get("location", "another address"), self._key)
            raise JudgeError(f"the server at {self.endpoint} sends us on to {target}; give that address as base_url")
        if status < 500 and status not in (408, 409, 429):
            raise QuestionRefused(f"the server refuses the question ({reason})")
        wait = requested_wait(problem)
        if wait > _MOST_PATIENCE:
            raise JudgeError(f"the server wants us to wait {wait:.0f} s ({reason}); run again then")

    def _report_wait(self, subject: str, wait: float, seconds: float, reason: str) -> None:
        """Logs a wait: as a warning where it is long, but once where many questions wait for one server."""
        now = time.monotonic()
        level = logging.INFO
        if seconds + wait > _QUIET_WAIT and now >= self._quiet_until:
            level = logging.WARNING
            self._quiet_until = now + wait
        message = "%s: waiting %.0f s to ask %s at %s again (%.0f s so far): %s"
        logger.log(level, message, subject, wait, self._judge.model, self.endpoint, seconds, reason)

    def _url(self, question: Question, image_key: str | None) -> str | None:
        """The question's image as text; those of the last images are kept for other questions about them."""
        if question.image is None:
            return None
        try:
            url = self._urls.get(image_key) or data_url(question.image)
        except ImageError as error:
            raise QuestionRefused(str(error)) from None
        recent = [*self._urls.items(), (image_key, url)]
        self._urls = dict(recent[-_URLS_KEPT:])
        return url

    def _takes_system(self, stop: threading.Event, subject: str) -> bool:
        """Whether system messages arrive. Some chat templates drop them without a word, some refuse them.

        A text is sent once in the user's turn and once as a system message: where it arrives, the server counts as many
        tokens. True also where it does not count.
        """
        with self._probing:
            if self._hears_system is not None:
                return self._hears_system
            counts: list[int | None] = []
            for with_system in (False, True):
                # A beginning of its own: a server may leave out of the bill what it has from an earlier request.
                question = Question("Hello.", system=f"{uuid4().hex} {_PROBE}")
                messages = chat_messages(question, None, with_system=with_system)
                request = {"max_tokens": 1, "temperature": 0.0, "messages": messages}
                try:
                    counts.append(self._complete(request, lambda reply: read_bill(reply)[0], stop, subject))
                except QuestionRefused:
                    counts.append(None)
            in_turn, as_system = counts
            self._hears_system = as_system is not None and (in_turn or 0) - as_system < _LEAST_LOST
            return self._hears_system

    def _post(self, url: str, request: dict[str, Any]) -> Any:
        """One request, in the words that the server takes, which are kept from then on.

        Newer servers refuse `max_tokens` for `max_completion_tokens`, and some allow fewer alternatives.
        """
        # Each refusal takes one thing away that was asked for, so this ends.
        while True:
            body = {"model": self._judge.model, **request, **self._judge.extra_body}
            if "max_tokens" in body:
                body[self._length_field] = body.pop("max_tokens")
            if "top_logprobs" in body:
                body["top_logprobs"] = min(body["top_logprobs"], self._most_alternatives)
            try:
                return self.client.post(url, cast_to=object, body=body)
            except openai.BadRequestError as error:
                message = str(error)
                if "max_tokens" in body and "max_tokens" in message:
                    self._length_field = "max_completion_tokens"
                elif "logprobs" in message and body.get("top_logprobs", 0) > _FEW_ALTERNATIVES:
                    numbers = [int(number) for number in re.findall(r"\b\d{1,2}\b", message)]
                    allowed = [number for number in numbers if 1 < number < body["top_logprobs"]]
                    self._most_alternatives = max(allowed, default=_FEW_ALTERNATIVES)
                else:
                    raise

    def _reason(self, problem: Exception) -> str:
        """What went wrong, in one line and without the key, which some servers repeat in their messages."""
        text = str(problem)
        if isinstance(problem, openai.APITimeoutError):
            text = f"no answer within {self._judge.timeout:g} s"
        elif isinstance(problem, openai.APIConnectionError):
            text = f"no connection ({problem.__cause__ or problem})"
        elif isinstance(problem, openai.APIStatusError):
            # where FastAPI's servers say why, which the client leaves out of its message
            detail = problem.body.get("detail") if isinstance(problem.body, dict) else None
            if detail and str(detail) not in text:
                text += f" - {detail}"
        elif not isinstance(problem, openai.APIError | GarbledReply | UnusableReply):
            text = f"the reply is cut off ({problem})"
        return printable(text, self._key)


def requested_wait(problem: Exception) -> float:
    """Seconds for which the server asks us to wait."""
    if isinstance(problem, openai.APIStatusError):
        return retry_after(problem.response.headers)
    return 0.0


def is_absent(problem: Exception) -> bool:
    """Whether nobody is there, or only a gateway, as while a server restarts."""
    if isinstance(problem, openai.APIStatusError):
        return problem.status_code in (502, 503, 504)
    return isinstance(problem, openai.APIConnectionError) and not isinstance(problem, openai.APITimeoutError)
