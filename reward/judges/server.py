"""ServerJudge: a model behind an OpenAI-compatible server, with retries, a cache on disk, and a bill."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import numpy as np

from reward.errors import ConfigError, ImageError, JudgeError
from reward.judges.asking import Twins, Workers, start_thread
from reward.judges.base import (
    PROBABILITIES,
    TEXT,
    Answer,
    NoProbabilities,
    Question,
    Usage,
    answered,
    check_asked,
    image_keys,
)
from reward.judges.cache import AnswerCache
from reward.judges.chat import MOST_ALTERNATIVES, ChatRequest, QuestionRefused, Sampled, Unanswered, request_key
from reward.judges.replies import ANSWER_LENGTH, lone_answer, weighed
from reward.optional import require

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from reward.judges.connection import Connection

R = TypeVar("R")
T = TypeVar("T")


class ServerJudge:
    """A vision-language model behind an OpenAI-compatible server (vLLM, SGLang, OpenAI) with log probabilities.

    Too many requests (429), server errors, timeouts, dropped connections and garbled replies are retried, after twice
    as long each time, or after as long as the server says. Refusals (400, 401, 403, 404) are not. Equal questions are
    asked once, also when two calls ask at the same time. With a cache every answer is on the disk as soon as it
    arrives: after a crash or Ctrl-C, run again, and only the missing answers are asked for.

    The first replies settle whether probabilities are read, or what is written, and the cache keeps that, too: numbers
    of both kinds cannot be compared. Where probabilities are read, a reply without them is asked again, up to three
    times, and has then no answer and a reason.

    The server lists only the 20 most likely tokens, or the fewer that it allows, not the whole vocabulary. An answer
    that is not listed gets probability 0: each of its spellings is in fact at most as likely as the last token listed.

    Some chat templates drop system messages without a word. Two short requests find out, unless the server is OpenAI's
    own: where the message does not arrive, it opens the first turn of the user, as with `LocalJudge`.

    Only the client holds the API key, which is read from the environment: it is in no log, message, pickle or cache.

    Args:
        model: as the server names it.
        base_url: such as `"http://localhost:8000/v1"`; None is OpenAI's own, or `OPENAI_BASE_URL`.
        api_key_env: name of the environment variable that holds the key. It may be unset for a server of your own.
        concurrency: most requests at a time.
        timeout: seconds until a request that has not been answered in full is given up and retried.
        retries: how often a request is tried again.
        cache: file to keep answers in (SQLite, made if absent); None keeps none. Answers belong to the server's
            address, the model and the settings of the request. A new file settles anew how answers are read.
        prices: price of a million tokens read and of a million written, for `usage.cost`.
        extra_body: further fields of each request, such as `{"chat_template_kwargs": {"enable_thinking": False}}`;
            they are part of the judge's name.
        patience: seconds for which a server that nobody answers for, perhaps since it restarts, is asked again beyond
            the retries. None is 0, and as long as `RemoteReward` waits in rewards that trainers call.

    Attributes:
        reading: "probabilities" or "text", the way in which answers are read; None until the first reply settles it.

    Raises:
        ConfigError: a setting is out of range, or no key is set and there is no `base_url`.
        MissingExtraError: the package openai is not installed.

    Example:
        >>> judge = ServerJudge("my-model", base_url="http://localhost:8000/v1", concurrency=32)
        >>> judge.usage.answered, judge.usage.cost
        (0, 0.0)
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        *,
        api_key_env: str = "OPENAI_API_KEY",
        concurrency: int = 8,
        timeout: float = 60.0,
        retries: int = 6,
        cache: str | os.PathLike[str] | None = None,
        prices: tuple[float, float] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        patience: float | None = None,
    ) -> None:
        require("openai", extra="judges", purpose="ServerJudge")
        if concurrency < 1 or retries < 0 or not timeout > 0:
            bounds = "concurrency must be at least 1, retries at least 0 and timeout above 0"
            raise ConfigError(f"{bounds}, got {concurrency}, {retries} and {timeout}")
        if patience is not None and not patience >= 0:
            raise ConfigError(f"patience must be at least 0 s, got {patience}")
        parts = urlsplit(base_url or "")
        if parts.username or parts.password or parts.query:
            raise ConfigError(f"base_url must hold no user, password or query; put the key into ${api_key_env}")
        if prices is not None and (not isinstance(prices, (tuple, list)) or len(prices) != 2):
            raise ConfigError(f"prices must be two numbers, as in [2.5,10], got {prices!r:.80}")
        self.name = model
        if extra_body:  # what these change is another judge, also to a run that goes on
            self.name += f" {json.dumps(dict(extra_body), sort_keys=True, default=repr)}"
        self.usage = Usage()
        self.reading: str | None = None
        self.model = model
        self.base_url = base_url
        self.key_name = api_key_env
        self.concurrency = concurrency
        self.timeout = timeout
        self.retries = retries
        self.patience = patience
        self.cache = cache
        self.prices = prices
        self.extra_body = dict(extra_body or {})
        if base_url is None and not os.environ.get("OPENAI_BASE_URL") and not os.environ.get(api_key_env):
            raise ConfigError(f"no API key: set the environment variable {api_key_env}, or give base_url")
        self.__setstate__({})

    @property
    def fingerprint(self) -> str:
        """Its name: what the server keeps under it cannot be seen from here."""
        return self.name

    def __repr__(self) -> str:
        return f"ServerJudge({self.name!r}, base_url={self.base_url!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # The connection and the cache are opened by the first question, in the process that asks it.
        self._connection: Connection | None = None
        self._answers: AnswerCache | None = None
        self._lock = threading.RLock()
        self._twins: Twins[Answer] = Twins()
        self._workers = Workers(self.concurrency)

    def close(self) -> None:
        """Closes connections and cache; the next question opens them again."""
        with self._lock:
            if self._connection is not None:
                self._connection.client.close()
            if self._answers is not None:
                self._answers.store.close()
            self._connection = self._answers = None

    def answer_distribution(self, questions: Sequence[Question], answers: Sequence[str]) -> np.ndarray:
        """Probabilities (N, len(answers)); see Judge, and the class for answers that are not listed.

        White space that the server finds likely but does not write cannot be followed: a question of which much is so
        fails.

        Raises:
            JudgeError: wrong key or model, or the server is down; or with `failures`, replies without an answer or
                log probabilities, questions that the server refuses, and images that cannot be read.
        """
        check_asked(questions, answers)
        check = partial(lone_answer, words=answers)
        replies, failures = self._ask_all(questions, max_tokens=ANSWER_LENGTH, top=MOST_ALTERNATIVES, check=check)
        return weighed(replies, failures, answers)

    def generate(
        self,
        questions: Sequence[Question],
        *,
        max_new_tokens: int = 256,
        top_logprobs: int = 0,
        track: Sequence[str] = (),
    ) -> list[Answer]:
        """Answers in order; see Judge. At most 20 of the `top_logprobs` are listed, and `track` is ignored.

        Raises:
            JudgeError: as for `answer_distribution`.
        """
        check_asked(questions)
        return answered(*self._ask_all(questions, max_tokens=max_new_tokens, top=top_logprobs))

    def sample(
        self,
        question: Question,
        n: int = 1,
        *,
        temperature: float = 1.0,
        max_new_tokens: int = 256,
        logprobs: bool = False,
        **settings: Any,
    ) -> Future[list[Sampled]]:
        """Starts to ask for sampled answers, which no cache keeps; gives the future of what the server writes.

        Args:
            question: what is asked.
            n: number of answers. Some servers ignore it and give one; others refuse it.
            temperature: of sampling.
            max_new_tokens: length limit of each.
            logprobs: whether to ask for log probabilities.
            settings: further fields of the request, such as `top_p` and `seed`.

        Raises:
            JudgeError: by the future; with `failures` if only this question was refused.
        """
        check_asked([question])
        fields = {"n": n, "temperature": temperature, "max_tokens": max_new_tokens, **settings}
        top = 0 if logprobs else None
        connection = self._open()
        future: Future[list[Sampled]] = Future()
        # What is asked must be paid for: nobody can cancel it.
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                (image_key,), failures = image_keys([question])
                if failures:
                    raise QuestionRefused(failures[0])
                answers = connection.ask(ChatRequest(question, image_key, fields, top), threading.Event())
                future.set_result([Sampled.of(answer) for answer in answers])
            except QuestionRefused as error:
                future.set_exception(JudgeError.of({0: str(error)}, [None]))
            except Exception as error:
                future.set_exception(error)

        start_thread(work)
        return future

    def post(
        self, url: str, requests: Sequence[R], write: Callable[[R], dict[str, Any]], read: Callable[[Any, R], T]
    ) -> tuple[list[T | None], dict[int, QuestionRefused | Unanswered]]:
        """Sends requests to another endpoint than that of chats, with the same patience; no cache keeps the replies.

        Args:
            url: the endpoint, as a whole address or below `base_url`, as in `"/rerank"`.
            requests: whatever these two take.
            write: gives the fields of a request, without the model. Called in threads.
            read: gives what a reply to a request says.

        Returns:
            (what the replies say, in order, None where there is a failure; {index of a request: why there is none}).

        Raises:
            JudgeError: wrong key or model, no such endpoint, or the server is down.
        """
        connection = self._open()

        def ask(request: R, stop: threading.Event) -> T:
            try:
                fields = write(request)
            except ImageError as error:
                raise QuestionRefused(str(error)) from None
            return connection.post(url, fields, lambda reply: read(reply, request), stop)

        return self._ask_each(requests, ask)

    def models(self) -> list[str]:
        """The models that the server lists, none if it keeps no list. Costs nothing.

        Raises:
            JudgeError: no server is there, or it refuses the key.
        """
        return self._open().models()

    def settle(self, reading: str) -> str:
        """Settles how answers are read, "probabilities" or "text", unless it is settled; gives what holds."""
        with self._lock:
            if self.reading is None:
                self.reading = reading
                if self._answers is not None:
                    self.reading = self._answers.settle(self._identity, reading)
            return self.reading

    def count(self, answered: int = 0, cached: int = 0, bill: tuple[int, int] = (0, 0)) -> None:
        """Adds to what was done: questions answered, those that were kept, and tokens read and written."""
        input_price, output_price = self.prices or (0.0, 0.0)
        with self._lock:
            self.usage.answered += answered
            self.usage.cached += cached
            self.usage.input_tokens += bill[0]
            self.usage.output_tokens += bill[1]
            self.usage.cost += (bill[0] * input_price + bill[1] * output_price) / 1e6

    def _open(self) -> Connection:
        """The connection of this process."""
        from reward.judges.connection import Connection  # on use: openai is an extra

        with self._lock:
            if self._connection is None:
                connection = Connection(self)
                self._identity = f"{connection.address} {self.name}"
                if self.cache is not None:
                    self._answers = AnswerCache(self.cache)
                    # What the run before settled holds; else what this judge has settled without the file.
                    settled = self._answers.reading(self._identity)
                    if settled is None and self.reading is not None:
                        settled = self._answers.settle(self._identity, self.reading)
                    self.reading = settled
                    if settled == TEXT:
                        logger.warning(
                            "%s holds answers of %s without log probabilities, so what is written is read; if it has "
                            "them now, begin anew with another file",
                            self.cache,
                            self.name,
                        )
                self._connection = connection
            return self._connection

    def _ask_all(
        self,
        questions: Sequence[Question],
        *,
        max_tokens: int,
        top: int,
        check: Callable[[Answer], str | None] = lambda answer: None,
    ) -> tuple[list[Answer | None], dict[int, str]]:
        """Answers in order, None where the failures have the reason; equal questions are asked once.

        Args:
            max_tokens: length limit of an answer.
            top: alternatives of each token; 0 without log probabilities.
            check: see `ChatRequest`.
        """
        address = self._open().address
        if top and self.reading == TEXT:
            raise NoProbabilities(f"the judge {self.name!r} gives no log probabilities: what it writes is read")
        settings = {"server": address, "model": self.model, "top": top, "max_tokens": max_tokens}
        settings["extra"] = self.extra_body
        hashes, failures = image_keys(questions)
        requests: dict[str, ChatRequest] = {}
        rows_of: dict[str, list[int]] = {}
        for row, question in enumerate(questions):
            if row in failures:
                continue
            key = request_key(question, hashes[row], settings)
            fields: dict[str, Any] = {"max_tokens": max_tokens, "temperature": question.temperature}
            if question.temperature:
                fields["seed"] = question.seed
            requests[key] = ChatRequest(question, hashes[row], fields, top or None, check)
            rows_of.setdefault(key, []).append(row)
        keys = list(requests)

        def ask(key: str, stop: threading.Event) -> Answer:
            answer, is_twin = self._twins.once(key, partial(self._ask, key, requests[key], stop))
            self.count(cached=len(rows_of[key]) - 1 + is_twin)
            return answer

        answers: list[Answer | None] = [None] * len(questions)
        replies, problems = self._ask_each(keys, ask)
        for index, key in enumerate(keys):
            for row in rows_of[key]:
                answers[row] = replies[index]
                if index in problems:
                    failures[row] = str(problems[index])
        return answers, failures

    def _ask_each(
        self, requests: Sequence[R], ask: Callable[[R, threading.Event], T]
    ) -> tuple[list[T | None], dict[int, QuestionRefused | Unanswered]]:
        """See `Workers.ask_each`; where nothing was ever answered, it is no question's fault, and that is raised."""
        results, failures = self._workers.ask_each(requests, ask)
        if not self.usage.answered and not self.usage.cached:
            for failure in failures.values():
                if isinstance(failure, Unanswered):
                    raise failure
        return results, failures

    def _ask(self, key: str, request: ChatRequest, stop: threading.Event) -> Answer:
        """An answer from the cache, or from the server."""
        answer = self._answers.get(key) if self._answers is not None else None
        # An answer that was kept without log probabilities cannot be weighed.
        if answer is not None and (answer.logprobs or not request.top):
            if request.top:
                self.settle(PROBABILITIES)
            self.count(cached=1)
            return answer
        answer = self._open().ask(request, stop)[0]
        if self._answers is not None and answer.text.strip():
            self._answers.put(key, answer)
        return answer
