"""Asks an OpenAI-compatible server many questions at a time: tries again, asks equal questions once, keeps answers."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import openai

from reward.errors import ImageError, JudgeError
from reward.http_client import GarbledReply, UnusableReply, backoff, printable, retry_after, whole_reply
from reward.judges.base import Answer, Question, image_keys
from reward.judges.cache import AnswerCache
from reward.judges.chat import Sampled, chat_messages, data_url, is_same_model, read_bill, read_reply, request_key

if TYPE_CHECKING:
    from reward.judges.server import ServerJudge

logger = logging.getLogger(__name__)

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0  # seconds between tries: doubled each time, up to the longest
_MOST_PATIENCE = 900.0  # a server may ask for a longer wait than ours, but not for hours
_PATIENCE_AT_FIRST = 15.0  # seconds until a server that does not even list its models counts as absent
_PATIENCE_WITH_LOADING = 120.0  # seconds for a server that is there but says that it is not ready
_URLS_KEPT = 16
_PROBE = "This is a test. " * 25  # each word is at least one token
_LEAST_LOST = 75  # tokens: more than the system message that some templates make up where none is given
T = TypeVar("T")


class _Refused(Exception):
    """This question will never be answered, but others may be."""


class _Stopped(Exception):
    """The call that asked was given up, so whoever else waits for this answer must ask for it."""


class _Connection(openai.DefaultHttpxClient):
    """The OpenAI client's own connection; a reply that is too large once unpacked, or never ends, is given up."""

    seconds = 60.0

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Sends a request and reads the whole reply: the client's own time limit is for each part of one."""
        return whole_reply(super().send(request, stream=True, **options), self.seconds)


class Session:
    """The connections of a `ServerJudge` in one process, and what is under way there, for any number of threads."""

    def __init__(self, judge: ServerJudge) -> None:
        self.pid, self.judge = os.getpid(), judge
        self._key = os.environ.get(judge.key_name) or None
        self._cache = AnswerCache(judge.cache) if judge.cache is not None else None
        connection = _Connection()
        connection.seconds = judge.timeout
        self._client = openai.OpenAI(
            api_key=self._key or "none",  # the client requires one, even for a server without keys
            base_url=judge.base_url,
            timeout=judge.timeout,
            max_retries=0,  # our retries also cover garbled replies, and end when the server is down
            http_client=connection,
        )
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(judge.concurrency)
        self._asking: dict[str, Future[Answer]] = {}
        self._urls: dict[str, Future[str]] = {}
        self._arrives: dict[str, Future[bool]] = {}
        self._length_field = "max_tokens"
        self._told: set[str] = set()  # other models that answered

    def close(self) -> None:
        """Closes connections and cache."""
        self._client.close()
        if self._cache is not None:
            self._cache.close()

    def ask_all(
        self, questions: Sequence[Question], *, max_tokens: int, top: int
    ) -> tuple[list[Answer | None], dict[int, str]]:
        """Answers in order, None where `failures` has the reason.

        Raises:
            JudgeError: the server is down, or refuses us. Questions under way are still finished and kept.
            OutputError: the cache cannot be written.
        """
        keys, failures = image_keys(questions)
        body: dict[str, Any] = {"server": str(self._client.base_url), "model": self.judge.model, "top": top}
        body |= {"max_tokens": max_tokens, "extra": self.judge.extra_body}
        distinct: dict[str, list[int]] = {}
        for row, question in enumerate(questions):
            if row not in failures:
                distinct.setdefault(request_key(question, keys[row], body), []).append(row)
        answers: list[Answer | None] = [None] * len(questions)
        waiting, problems, stop = iter(distinct.items()), list[Exception](), threading.Event()

        def work() -> None:
            while not stop.is_set():
                with self._lock:
                    key, rows = next(waiting, ("", []))
                if not rows:
                    return
                try:
                    answer = self._ask(key, questions[rows[0]], keys[rows[0]], max_tokens, top, stop)
                except _Refused as error:
                    failures.update(dict.fromkeys(rows, str(error)))
                except _Stopped:
                    return
                except Exception as error:  # whatever it is, the others must finish before it is raised
                    problems.append(error)
                    stop.set()
                else:
                    self._count(cached=len(rows) - 1)
                    for row in rows:
                        answers[row] = answer

        threads = [_thread(work) for _ in range(min(self.judge.concurrency, len(distinct)))]
        try:
            for thread in threads:
                thread.join()
        finally:
            stop.set()  # Ctrl-C: what is under way is still kept, and nothing else is asked
        if problems:
            raise problems[0]
        return answers, failures

    def sample(self, question: Question, fields: dict[str, Any], *, logprobs: bool) -> Future[list[Sampled]]:
        """Starts to ask for sampled answers; the server may give fewer than the `n` in the fields of the request."""
        future: Future[list[Sampled]] = Future()
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                keys, failures = image_keys([question])
                if failures:
                    raise _Refused(failures[0])
                answers = self._request(question, keys[0], fields, 0 if logprobs else None, threading.Event())
                future.set_result(list(map(Sampled.of, answers)))
            except Exception as error:
                future.set_exception(JudgeError.of({0: str(error)}, [None]) if isinstance(error, _Refused) else error)

        _thread(work)
        return future

    def _ask(
        self, key: str, question: Question, image_key: str | None, max_tokens: int, top: int, stop: threading.Event
    ) -> Answer:
        """An answer from the cache, from another call that is asking the same question, or from the server."""

        def ask() -> Answer:
            kept = self._cache.get(key) if self._cache is not None else None
            if kept is not None and (kept.logprobs or not top):
                self._count(cached=1)
                return kept
            fields: dict[str, Any] = {"max_tokens": max_tokens, "temperature": question.temperature}
            if question.temperature:
                fields["seed"] = question.seed
            (answer, *_) = self._request(question, image_key, fields, top or None, stop)
            if self._cache is not None:
                self._cache.put(key, answer)
            return answer

        answer, is_own = self._once(self._asking, key, ask)
        self._count(cached=not is_own)
        return answer

    def _request(
        self, question: Question, image_key: str | None, fields: dict[str, Any], top: int | None, stop: threading.Event
    ) -> list[Answer]:
        """What the server answers, with log probabilities of the tokens and of `top` others, or without any."""
        request = {**fields, "messages": self._messages(question, image_key, stop)}
        if top is not None:
            request |= {"logprobs": True, **({"top_logprobs": top} if top else {})}
        answers = self._complete(request, partial(read_reply, top=top), stop)
        self._count(answered=1)
        if top is not None and not all(answer.logprobs for answer in answers):
            raise _Refused(
                "the server gave no log probabilities; start it with them (vLLM: --max-logprobs 20), or use a server "
                "and a model that have them (transformers serve has none)"
            )
        return answers

    def models(self) -> list[str]:
        """The models that the server lists, none if it keeps no list. Waits while it says that it is not ready (503).

        Raises:
            JudgeError: no server is there, it is still not ready, or it refuses the key.
        """
        address = self.judge.base_url or "the default address"
        client = self._client.with_options(timeout=min(_PATIENCE_AT_FIRST, self.judge.timeout))
        until = time.monotonic() + _PATIENCE_WITH_LOADING
        while True:
            try:
                listed: Any = client.get("/models", cast_to=object)
                return [str(model["id"]) for model in listed["data"]]
            except openai.APIConnectionError as error:
                problem = f"no server can be asked at {address}: {self._reason(error)}. Start it, or check the "
                problem += "address, which mostly ends in /v1"
                break
            except openai.APIStatusError as error:
                if error.status_code in (401, 403):
                    problem = f"the server refuses the key in ${self.judge.key_name} ({self._reason(error)})"
                    break
                if error.status_code != 503:  # llama.cpp's while it loads the model
                    return []
                problem = f"the server at {address} is not ready ({self._reason(error)}); run again when it is"
            except (openai.APIError, UnusableReply, LookupError, TypeError, ValueError):  # a page, not a list
                return []
            if time.monotonic() > until:
                break
            logger.info("waiting: %s", problem)
            time.sleep(_FIRST_WAIT)
        raise JudgeError(problem)  # outside of `except`, as in `_complete`

    def _complete(self, request: dict[str, Any], read: Callable[[Any], T], stop: threading.Event) -> T:
        """Asks the server until it answers, refuses, or has been tried often enough; `stop` ends the waiting."""
        request = {"model": self.judge.model, **request, **self.judge.extra_body}
        for attempt in range(self.judge.retries + 1):
            if stop.is_set():
                raise _Stopped
            problem: Exception
            try:
                with self._free:
                    reply = self._post(request)
                if not isinstance(reply, dict):
                    raise GarbledReply("the server's reply is not a chat completion")
                answer = read(reply)
            except UnusableReply as error:
                raise _Refused(str(error)) from None
            except (openai.APIError, GarbledReply, ValueError, RecursionError) as error:  # the last two: broken JSON
                cause = error.__cause__  # the client before 3.0 takes what `_Connection` raises for a lost connection
                if isinstance(cause, UnusableReply):
                    raise _Refused(str(cause)) from None
                problem = cause if isinstance(cause, GarbledReply) else error
            else:
                self._count(bill=read_bill(reply))
                self._compare_names(reply.get("model"))
                return answer
            # Outside of `except`, so that the client's error, which holds the request and its key, is not chained.
            wait = max(self._least_wait(problem), backoff(attempt, first=_FIRST_WAIT, longest=_LONGEST_WAIT))
            if attempt < self.judge.retries:
                logger.info("asking %s again in %.1f s: %s", self.judge.model, wait, self._reason(problem))
                stop.wait(wait)
        kept, advice = "kept", "run again to go on"
        if self._cache is None:
            kept, advice = "lost", "give `cache` a file, so that the next run goes on from here"
        raise JudgeError(
            f"the server of {self.judge.model!r} did not answer in {attempt + 1} tries, last: "
            f"{self._reason(problem)}. Answers so far are {kept}; {advice}"
        )

    def _post(self, request: dict[str, Any]) -> Any:
        """One request. Newer servers refuse `max_tokens`: they are told `max_completion_tokens`, from then on."""
        newer = {**request, "max_completion_tokens": request["max_tokens"]}
        del newer["max_tokens"]
        if self._length_field == "max_tokens":
            try:
                return self._client.post("/chat/completions", cast_to=object, body=request)
            except openai.BadRequestError as error:
                if "max_tokens" not in str(error):
                    raise
        reply = self._client.post("/chat/completions", cast_to=object, body=newer)
        self._length_field = "max_completion_tokens"
        return reply

    def _messages(self, question: Question, image_key: str | None, stop: threading.Event) -> list[dict[str, Any]]:
        """The conversation; with the system message in the first turn where it would not arrive by itself."""
        arrives, url = True, None
        if question.system is not None and self.judge.base_url is not None:  # OpenAI's own takes it
            arrives, _ = self._once(self._arrives, "system", partial(self._probe_system, stop), keep=1)
        image = question.image
        if image_key is not None and image is not None:
            try:
                url, _ = self._once(self._urls, image_key, partial(data_url, image), keep=_URLS_KEPT)
            except ImageError as error:
                raise _Refused(str(error)) from None
        return chat_messages(question, url, with_system=arrives)

    def _probe_system(self, stop: threading.Event) -> bool:
        """Whether system messages arrive. Some chat templates drop them without a word, some refuse them.

        A text is sent once in the user's turn and once as a system message: where it arrives, the server counts as many
        tokens. True also where it does not count.
        """
        counts = []
        for with_system in (False, True):
            messages = chat_messages(Question("Hello.", system=_PROBE), None, with_system=with_system)
            request = {"max_tokens": 1, "temperature": 0.0, "messages": messages}
            try:
                counts.append(self._complete(request, lambda reply: read_bill(reply)[0], stop))
            except _Refused:
                return not with_system
        return counts[0] - counts[1] < _LEAST_LOST

    def _once(self, values: dict[str, Future[T]], key: str, make: Callable[[], T], keep: int = 0) -> tuple[T, bool]:
        """A value, and whether it was made for this call: of threads that want one at a time, the first makes it.

        Args:
            values: by key, those under way and the last `keep` that were made.
        """
        while True:
            with self._lock:
                future, is_own = values.get(key), key not in values
                if future is None:
                    future = values[key] = Future()
            if not is_own:
                with suppress(_Stopped):
                    return future.result(), False
                continue
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)
            with self._lock:
                if not keep or future.exception() is not None:
                    values.pop(key, None)
                elif len(values) > keep:
                    del values[next(iter(values))]
            return future.result(), True

    def _least_wait(self, problem: Exception) -> float:
        """Seconds that must pass before another try; raises if another try is of no use."""
        if not isinstance(problem, openai.APIStatusError):
            return 0.0
        status, reason, judge = problem.status_code, self._reason(problem), self.judge
        if status in (401, 403):
            raise JudgeError(f"the server refuses the key in ${judge.key_name} ({reason})")
        if status == 404:
            raise JudgeError(
                f"no model {judge.model!r} at {judge.base_url or 'the default server'} ({reason}); check the model's "
                "name, and that base_url ends as the server wants it, mostly with /v1"
            )
        if problem.code == "insufficient_quota":
            raise JudgeError(f"the account of the key in ${judge.key_name} is used up ({reason})")
        if status < 500 and status not in (408, 409, 429):
            raise _Refused(f"the server refuses the question ({reason})")
        wait = retry_after(problem.response.headers)
        if wait > _MOST_PATIENCE:
            raise JudgeError(f"the server wants us to wait {wait:.0f} s ({reason}); run again then")
        return wait

    def _reason(self, problem: Exception) -> str:
        """What went wrong, in one line and without the key, which some servers repeat in their messages."""
        text = str(problem)
        if isinstance(problem, openai.APITimeoutError):
            text = f"no answer within {self.judge.timeout:g} s"
        elif isinstance(problem, openai.APIConnectionError):
            text = f"no connection ({problem.__cause__ or problem})"
        elif isinstance(problem, openai.APIStatusError):
            # where FastAPI's servers say why, which the client leaves out of its message
            detail = problem.body.get("detail") if isinstance(problem.body, dict) else None
            text += f" - {detail}" if detail and str(detail) not in text else ""
        elif not isinstance(problem, openai.APIError | GarbledReply):
            text = f"the reply is cut off ({problem})"
        return printable(text, self._key)

    def _compare_names(self, told: Any) -> None:
        """Warns of each other model that answers, once."""
        asked, told = self.judge.model, printable(str(told or ""), self._key)
        with self._lock:
            if not told or told in self._told or is_same_model(asked, told):
                return
            self._told.add(told)
        logger.warning(
            "%r was asked for, and %r answers, by its own word: check that it is the model you mean. llama.cpp answers "
            "whatever name it is asked for.",
            asked,
            told,
        )

    def _count(self, answered: int = 0, cached: int = 0, bill: tuple[int, int] = (0, 0)) -> None:
        usage, prices = self.judge.usage, self.judge.prices or (0.0, 0.0)
        with self._lock:
            usage.answered += answered
            usage.cached += cached
            usage.input_tokens += bill[0]
            usage.output_tokens += bill[1]
            usage.cost += (bill[0] * prices[0] + bill[1] * prices[1]) / 1e6


def _thread(work: Callable[[], None]) -> threading.Thread:
    """Starts a thread that does not keep the process from ending, as those of an executor would."""
    thread = threading.Thread(target=work, name="judge", daemon=True)
    thread.start()
    return thread
