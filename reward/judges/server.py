"""ServerJudge: a model behind an OpenAI-compatible server, with retries, a cache on disk, and a bill."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from reward.errors import ConfigError, JudgeError
from reward.judges.base import Answer, Question, Usage, answer_mass_after_blanks, answered, check_asked, image_keys
from reward.judges.cache import AnswerCache
from reward.judges.chat import Refused, Sampled, Stopped, request_key
from reward.judges.replies import ANSWER_LENGTH, weighed
from reward.optional import require

logger = logging.getLogger(__name__)

_LOST_BY_A_SERVER = 3  # questions in a row that are not answered by one that is down
_MOST_ALTERNATIVES = 20  # what the API allows
_ANSWER_LENGTH = 3  # tokens: an answer, with up to two of white space before it
# White space that was not followed, relative to the answers: above the first a warning is given, above the second an
# error.
_SOME, _MUCH = 0.01, 0.1


class ServerJudge:
    """A vision-language model behind an OpenAI-compatible server (vLLM, SGLang, OpenAI) with log probabilities.

    Too many requests (429), server errors, timeouts, dropped connections and garbled replies are retried, after twice
    as long each time, or after as long as the server says. Refusals (400, 401, 403, 404) are not. Equal questions are
    asked once, also when two calls ask at the same time. With a cache every answer is on the disk as soon as it
    arrives: after a crash or Ctrl-C, run again, and only the missing answers are asked for.

    The server lists only the 20 most likely tokens (`top_logprobs`), not the whole vocabulary. An answer that is not
    listed gets probability 0: each of its spellings is in fact at most as likely as the last token listed.

    For a distribution the server writes three tokens, so that an answer after white space is read with its probability.
    White space that the server finds likely but does not write cannot be followed. Above 1 % of the probability of the
    answers, a warning says so; above 10 %, the question fails.

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
            address, the model and the settings of the request.
        prices: price of a million tokens read and of a million written, for `usage.cost`.
        top_logprobs: alternatives to ask for, where a server allows fewer than 20.
        extra_body: further fields of each request, such as `{"chat_template_kwargs": {"enable_thinking": False}}`;
            they are part of the judge's name.

    Raises:
        ConfigError: a setting is out of range, or no key is set and there is no `base_url`.
        MissingExtraError: the package openai is not installed.

    Example:
        >>> judge = ServerJudge("my-model", base_url="http://localhost:8000/v1", concurrency=32)
        >>> judge.usage
        Usage(answered=0, cached=0, input_tokens=0, output_tokens=0, cost=0.0)
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
        top_logprobs: int = _MOST_ALTERNATIVES,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        require("openai", extra="judges", purpose="ServerJudge")
        if concurrency < 1 or retries < 0 or not timeout > 0:
            raise ConfigError(
                "concurrency must be at least 1, retries at least 0 and timeout above 0, "
                f"got {concurrency}, {retries} and {timeout}"
            )
        if not 1 <= top_logprobs <= _MOST_ALTERNATIVES:
            raise ConfigError(f"top_logprobs must be in 1..{_MOST_ALTERNATIVES}, got {top_logprobs}")
        parts = urlsplit(base_url or "")
        if parts.username or parts.password or parts.query:
            raise ConfigError(f"base_url must hold no user, password or query; put the key into ${api_key_env}")
        fields = json.dumps(dict(extra_body), sort_keys=True, default=repr) if extra_body else ""
        self.name = f"{model} {fields}".strip()  # what these change is another judge, also to a run that goes on
        self.usage = Usage()
        self.model, self.base_url, self.key_name = model, base_url, api_key_env
        self.concurrency, self.timeout, self.retries = concurrency, timeout, retries
        self.cache, self.prices, self.top_logprobs = cache, prices, top_logprobs
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
        self._connection: Any = None  # and the cache: opened by the first question, in the process that asks it
        self._answers: AnswerCache | None = None
        self._lock = threading.RLock()
        self._asking: dict[str, Future[Answer]] = {}
        self._lost_in_a_row = 0

    def close(self) -> None:
        """Closes connections and cache; the next question opens them again."""
        with self._lock:
            for each in filter(None, (self._connection, self._answers)):
                each.close()
            self._connection = self._answers = None

    def pieces(self, text: str) -> None:
        """None: a server does not tell how it cuts texts. See Judge."""

    def answer_distribution(self, questions: Sequence[Question], answers: Sequence[str]) -> np.ndarray:
        """Probabilities (N, len(answers)); see Judge, and the class for answers that are not listed.

        Raises:
            JudgeError: wrong key or model, or the server is down; or with `failures`, questions that it refuses or
                answers without log probabilities, and images that cannot be read.
        """
        check_asked(questions, answers)
        replies = self._ask_all(questions, max_tokens=_ANSWER_LENGTH, top=self.top_logprobs)
        return _table(*replies, answers)

    def weigh(self, questions: Sequence[Question], words: Sequence[str]) -> np.ndarray:
        """Probabilities (N, len(words)) where the replies give their answers, see `weigh_answers`.

        Raises:
            JudgeError: as for `answer_distribution`, and with `failures`, replies without an answer.
        """
        check_asked(questions, words)
        replies, failures = self._ask_all(questions, max_tokens=ANSWER_LENGTH, top=self.top_logprobs)
        return weighed(replies, failures, words)

    def generate(
        self,
        questions: Sequence[Question],
        *,
        max_new_tokens: int = 256,
        top_logprobs: int = 0,
        track: Sequence[str] = (),
    ) -> list[Answer]:
        """Answers in order; see Judge. `top_logprobs` is at most that of the class, and `track` is ignored.

        Raises:
            JudgeError: as for `answer_distribution`.
        """
        check_asked(questions)
        if top_logprobs > self.top_logprobs:
            raise ValueError(f"the server lists at most {self.top_logprobs} tokens, but top_logprobs={top_logprobs}")
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
        connection = self._open()
        future: Future[list[Sampled]] = Future()
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                keys, failures = image_keys([question])
                if failures:
                    raise Refused(failures[0])
                answers = connection.ask(question, keys[0], fields, 0 if logprobs else None, threading.Event())
                future.set_result(list(map(Sampled.of, answers)))
            except Exception as error:
                future.set_exception(JudgeError.of({0: str(error)}, [None]) if isinstance(error, Refused) else error)

        _thread(work)
        return future

    def models(self) -> list[str]:
        """The models that the server lists, none if it keeps no list. Costs nothing.

        Raises:
            JudgeError: no server is there, or it refuses the key.
        """
        listed: list[str] = self._open().models()
        return listed

    def _open(self) -> Any:
        """The connection of this process."""
        from reward.judges.connection import Connection

        with self._lock:
            if self._connection is None:
                settings = (self.model, self.base_url, self.key_name, self.concurrency, self.timeout, self.retries)
                self._answers = None if self.cache is None else AnswerCache(self.cache)
                self._connection = Connection(*settings, self.extra_body, self.cache is not None, self._count)
            return self._connection

    def _ask_all(
        self, questions: Sequence[Question], *, max_tokens: int, top: int
    ) -> tuple[list[Answer | None], dict[int, str]]:
        """Answers in order, None where the failures have the reason.

        Raises:
            JudgeError: the server is down, or refuses us. Questions under way are still finished and kept.
            OutputError: the cache cannot be written.
        """
        keys, failures = image_keys(questions)
        body = {"server": self._open().address, "model": self.model, "top": top, "max_tokens": max_tokens}
        body |= {"extra": self.extra_body}
        distinct: dict[str, list[int]] = {}
        for row, question in enumerate(questions):
            if row not in failures:
                distinct.setdefault(request_key(question, keys[row], body), []).append(row)
        answers: list[Answer | None] = [None] * len(questions)
        waiting, problems, stop = iter(distinct.items()), list[Exception](), threading.Event()
        unanswered: list[Exception] = []

        from reward.judges.connection import Unanswered

        def work() -> None:
            while not stop.is_set():
                with self._lock:
                    key, rows = next(waiting, ("", []))
                if not rows:
                    return
                ask = partial(self._ask, key, questions[rows[0]], keys[rows[0]], max_tokens, top, stop)
                try:
                    answer = self._once(key, ask)
                except Refused as error:
                    self._lost_in_a_row = 0
                    failures.update(dict.fromkeys(rows, str(error)))
                except Unanswered as error:
                    failures.update(dict.fromkeys(rows, str(error)))
                    unanswered.append(error)
                    if self._is_down():
                        problems.append(error)
                        stop.set()
                except Stopped:
                    return
                except Exception as error:  # whatever it is, the others must finish before it is raised
                    problems.append(error)
                    stop.set()
                else:
                    self._count(cached=len(rows) - 1)
                    self._lost_in_a_row = 0
                    for row in rows:
                        answers[row] = answer

        threads = [_thread(work) for _ in range(min(self.concurrency, len(distinct)))]
        try:
            for thread in threads:
                thread.join()
        finally:
            stop.set()  # Ctrl-C: what is under way is still kept, and nothing else is asked
        if unanswered and not self.usage.answered and not self.usage.cached:
            problems.append(unanswered[0])
        if problems:
            raise problems[0]
        return answers, failures

    def _is_down(self) -> bool:
        """Counts a question that was not answered; whether so many in a row are the fault of the server."""
        with self._lock:
            self._lost_in_a_row += 1
            return self._lost_in_a_row >= max(self.concurrency, _LOST_BY_A_SERVER)

    def _once(self, key: str, ask: Callable[[], Answer]) -> Answer:
        """An answer; of threads that want one at a time, the first asks for it."""
        own: Future[Answer] = Future()
        while (asked := self._asking.setdefault(key, own)) is not own:
            with suppress(Stopped):  # then this thread asks
                answer = asked.result()
                self._count(cached=1)
                return answer
        try:
            own.set_result(ask())
        except BaseException as error:
            own.set_exception(error)
        del self._asking[key]
        return own.result()

    def _ask(
        self, key: str, question: Question, image_key: str | None, max_tokens: int, top: int, stop: threading.Event
    ) -> Answer:
        """An answer from the cache, or from the server."""
        kept = self._answers.get(key) if self._answers is not None else None
        if kept is not None and (kept.logprobs or not top):
            self._count(cached=1)
            return kept
        fields: dict[str, Any] = {"max_tokens": max_tokens, "temperature": question.temperature}
        if question.temperature:
            fields["seed"] = question.seed
        answer: Answer = self._open().ask(question, image_key, fields, top or None, stop)[0]
        if self._answers is not None and answer.text.strip():
            self._answers.put(key, answer)
        return answer

    def _count(self, answered: int = 0, cached: int = 0, bill: tuple[int, int] = (0, 0)) -> None:
        prices = self.prices or (0.0, 0.0)
        with self._lock:
            self.usage.answered += answered
            self.usage.cached += cached
            self.usage.input_tokens += bill[0]
            self.usage.output_tokens += bill[1]
            self.usage.cost += (bill[0] * prices[0] + bill[1] * prices[1]) / 1e6


def _thread(work: Callable[[], None]) -> threading.Thread:
    """Starts a thread that does not keep the process from ending, as those of an executor would."""
    thread = threading.Thread(target=work, name="judge", daemon=True)
    thread.start()
    return thread


def _table(replies: list[Answer | None], failures: dict[int, str], answers: Sequence[str]) -> np.ndarray:
    table = np.full((len(replies), len(answers)), np.nan)
    failures, unsure = dict(failures), []
    for row, answer in enumerate(replies):
        if answer is None:
            continue
        masses, unknown = answer_mass_after_blanks(answer, answers)
        if unknown > max(_MUCH * sum(masses), _SOME):
            failures[row] = (
                f"the server gave white space a probability of {unknown:.2g} and did not go on from it, and gave the "
                f"answers {sum(masses):.2g} in all; a model on this machine goes on from all white space"
            )
            continue
        table[row] = masses
        if unknown > _SOME * sum(masses):
            unsure.append(unknown)
    if unsure:
        logger.warning(
            "%d of %d distributions leave out what follows white space that the server did not write, which had a "
            "probability of up to %.2g.",
            len(unsure),
            len(replies),
            max(unsure),
        )
    return answered(table, failures)
