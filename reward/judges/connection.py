"""Questions to a server: each is asked until it is answered or refused, or the server is down."""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import openai

from reward.errors import ImageError, JudgeError
from reward.http_client import GarbledReply, UnusableReply, backoff
from reward.judges.asking import Stopped
from reward.judges.base import PROBABILITIES, TEXT, Answer, NoProbabilities, Question
from reward.judges.chat import (
    ChatRequest,
    MissingProbabilities,
    OddProbabilities,
    Refused,
    Unanswered,
    chat_messages,
    data_url,
    read_bill,
    read_reply,
    reply_of_stream,
)
from reward.judges.endpoint import Endpoint, is_absent, requested_wait

if TYPE_CHECKING:
    from reward.judges.server import ServerJudge

logger = logging.getLogger(__name__)

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0  # seconds between tries: doubled each time, up to the longest
_LONGEST_WHILE_ABSENT = 15.0  # seconds between tries while nobody is there, who may come back at any time
_QUIET_WAIT = 10.0  # seconds: a longer wait is a warning
_URLS_KEPT = 16
_PROBE = "This is a test. " * 25  # each word is at least one token
_LEAST_LOST = 75  # tokens: more than the system message that some templates make up where none is given
_TRIES_OF_PROBABILITIES = 3  # of a reply whose log probabilities cannot be used
_NO_PROBABILITIES = (
    "the server gave no log probabilities; start it with them (vLLM: --max-logprobs 20), or use a server and a model "
    "that have them (transformers serve has none)"
)
T = TypeVar("T")


class Connection:
    """Asks a server, in any number of threads.

    Args:
        judge: has the settings; is told of questions that are answered, of their price, and how answers are read.
    """

    def __init__(self, judge: ServerJudge) -> None:
        self._judge = judge
        self.endpoint = Endpoint(judge)
        self._free = threading.BoundedSemaphore(judge.concurrency)
        self._urls: dict[str | None, str] = {}
        self._probing = threading.Lock()
        self._hears_system: bool | None = None
        if judge.base_url is None:  # OpenAI's own does
            self._hears_system = True
        self._other_models: set[str] = set()  # that answered
        self._quiet_until = 0.0  # on the clock of `time.monotonic`: waits before are no warnings

    def ask(self, request: ChatRequest, stop: threading.Event, metric: str = "") -> list[Answer]:
        """The answers in the choices of the server's reply.

        Args:
            request: what is asked.
            stop: ends the waiting between tries.
            metric: that asks, for what is said of waits.

        Raises:
            Refused: this question will not be answered.
            Unanswered: it was not answered in all tries.
            Stopped: `stop` was set.
            NoProbabilities: the server gives none, or an earlier call has settled that what is written is read.
            JudgeError: the server is down, or refuses us.
        """
        question = request.question
        subject = f"{question.text[:60]!r}..."
        if metric:
            subject = f"{metric}: {subject}"
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

    def _complete(self, fields: dict[str, Any], read: Callable[[Any], T], stop: threading.Event, subject: str) -> T:
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
            result = self._try(fields, read)
            if not isinstance(result, Exception):
                return result
            odd_replies += isinstance(result, OddProbabilities)
            self._check_hope(result, odd_replies)
            reason = self.endpoint.reason(result)
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
        fate = "lost; give `cache` a file, so that the next run goes on from here"
        if judge.cache is not None:
            fate = "kept; run again to go on"
        message = (
            f"the server of {judge.name!r} at {self.endpoint.place} did not answer in {attempt + 1} tries, last: "
            f"{reason}. Answers so far are {fate}"
        )
        if isinstance(result, openai.APIConnectionError) and not isinstance(result, openai.APITimeoutError):
            raise JudgeError(message)  # nobody is there
        raise Unanswered(message)

    def _try(self, fields: dict[str, Any], read: Callable[[Any], T]) -> T | Exception:
        """What `read` makes of the reply to one request, or why there is none.

        The reason is returned, so that what is raised of it does not hold the client's error with request and key.
        """
        try:
            with self._free:
                reply = self.endpoint.post(fields)
            if isinstance(reply, str):
                reply = reply_of_stream(reply)
            answer = read(reply)
        except (openai.APIError, UnusableReply, GarbledReply, ValueError, RecursionError) as error:
            # The last two are of broken JSON. The client before 3.0 takes what is raised while it reads a reply for a
            # lost connection.
            if isinstance(error.__cause__, (UnusableReply, GarbledReply)):
                return error.__cause__
            return error
        self._judge.count(bill=read_bill(reply))
        self._compare_names(reply.get("model"))
        return answer

    def _check_hope(self, problem: Exception, odd_replies: int) -> None:
        """Raises if another try is of no use; `odd_replies` to this question had no probabilities that can be used."""
        reason = self.endpoint.reason(problem)
        is_last = odd_replies >= _TRIES_OF_PROBABILITIES
        if isinstance(problem, MissingProbabilities):
            if is_last and self._judge.settle(TEXT) == TEXT:
                raise NoProbabilities(_NO_PROBABILITIES)
        elif isinstance(problem, OddProbabilities):
            is_last = is_last or odd_replies > self._judge.retries
        if isinstance(problem, UnusableReply) and (is_last or not isinstance(problem, OddProbabilities)):
            raise Refused(reason)
        self.endpoint.check_hope(problem)

    def _report_wait(self, subject: str, wait: float, seconds: float, reason: str) -> None:
        """Logs a wait: as a warning where it is long, but once where many questions wait for one server."""
        now = time.monotonic()
        level = logging.INFO
        if seconds + wait > _QUIET_WAIT and now >= self._quiet_until:
            level = logging.WARNING
            self._quiet_until = now + wait
        patience = ""
        if self._judge.patience:
            patience = f", and up to {self._judge.patience:.0f} s while nobody answers"
        message = "%s: waiting %.0f s to ask %s at %s again (%.0f s so far%s): %s"
        logger.log(level, message, subject, wait, self._judge.model, self.endpoint.place, seconds, patience, reason)

    def _url(self, question: Question, image_key: str | None) -> str | None:
        """The question's image as text; those of the last images are kept for other questions about them."""
        if question.image is None:
            return None
        try:
            url = self._urls.get(image_key) or data_url(question.image)
        except ImageError as error:
            raise Refused(str(error)) from None
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
                except Refused:
                    counts.append(None)
            in_turn, as_system = counts
            self._hears_system = as_system is not None and (in_turn or 0) - as_system < _LEAST_LOST
            return self._hears_system

    def _compare_names(self, name: Any) -> None:
        """Warns of each other model that answers, once.

        Names of one model differ at most in case, in folders before it, or in a date or version. One that is longer in
        other ways is of a quantised or a smaller model.
        """
        name = self.endpoint.without_key(str(name or ""))
        short, long = sorted((self._judge.model.casefold(), name.casefold()), key=len)
        dated = re.fullmatch(re.escape(short) + r"(:latest|-latest|[-@]\d{3,4}(-?\d\d-?\d\d)?)", long)
        is_same = short == long or long.endswith(f"/{short}") or dated is not None
        if not name or is_same or name in self._other_models:
            return
        self._other_models.add(name)
        logger.warning(
            "%r was asked for, and %r answers, by its own word: check that it is the model you mean",
            self._judge.model,
            name,
        )
