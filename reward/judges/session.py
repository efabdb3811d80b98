"""Asks an OpenAI-compatible server many questions at a time: limits, retries, equal questions, cache and cost."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import openai

from reward.errors import ImageError, JudgeError
from reward.http_client import LimitedReplies, UnusableReply, backoff, printable, retry_after
from reward.judges.background import BackgroundLoop
from reward.judges.base import Answer, Question, Usage, image_keys
from reward.judges.cache import AnswerCache
from reward.judges.chat import (
    GarbledReply,
    Sampled,
    ServerSettings,
    chat_messages,
    data_url,
    is_same_model,
    read_bill,
    read_choices,
    read_reply,
    request_key,
)

__all__ = ["Session"]

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


class _NotReady(Exception):
    """The server is there and will answer later."""


class _Abandoned(Exception):
    """The call that asked a question was cancelled, so calls that waited for its answer must ask themselves."""


class _LimitedClient(LimitedReplies, openai.DefaultAsyncHttpxClient):
    """The OpenAI client's own connection, which refuses a reply that is too large once it is unpacked."""


class Session:
    """A client with an event loop in the background, for one process.

    Args:
        settings: where and how to ask.
        cache: file of answers, or None.
        usage: counts what is done.
    """

    def __init__(self, settings: ServerSettings, cache: str | os.PathLike[str] | None, usage: Usage) -> None:
        self.pid = os.getpid()
        self.settings, self.usage = settings, usage
        self._cache = AnswerCache(cache) if cache is not None else None
        self._client = openai.AsyncOpenAI(
            api_key=settings.key() or "none",  # the client requires one, even for a server without keys
            base_url=settings.base_url,
            timeout=settings.timeout,
            max_retries=0,  # our retries also cover garbled replies, and end when the server is down
            http_client=_LimitedClient(),
        )
        self.loop = BackgroundLoop()
        self._free = asyncio.Semaphore(settings.concurrency)
        self._asking: dict[str, asyncio.Future[Answer]] = {}
        self._urls: dict[str, asyncio.Future[str]] = {}
        self._hears_system: asyncio.Future[bool] | None = None
        self._length_field = "max_tokens"
        self._told: set[str] = set()  # other models that answered

    def close(self) -> None:
        """Stops what runs and closes connections and cache."""
        self.loop.run(self._client.close())
        self.loop.close()
        if self._cache is not None:
            self._cache.close()

    async def ask_all(
        self, questions: Sequence[Question], *, max_tokens: int, top: int
    ) -> tuple[list[Answer | None], dict[int, str]]:
        """Answers in order, None where `failures` has the reason.

        Raises:
            JudgeError: the server is down, or refuses us. Questions under way are still finished and kept.
            OutputError: the cache cannot be written.
        """
        keys, failures = await asyncio.to_thread(image_keys, questions)
        body = {
            "server": str(self._client.base_url),
            "model": self.settings.model,
            "max_tokens": max_tokens,
            "top": top,
            "extra": self.settings.extra_body,
        }
        distinct: dict[str, list[int]] = {}
        for row, question in enumerate(questions):
            if row not in failures:
                distinct.setdefault(request_key(question, keys[row], body), []).append(row)
        answers: list[Answer | None] = [None] * len(questions)
        waiting = iter(distinct.items())
        stop: list[Exception] = []

        async def work() -> None:
            for key, rows in waiting:
                if stop:
                    return
                try:
                    answer = await self._ask(key, questions[rows[0]], keys[rows[0]], max_tokens, top, stop)
                except _Refused as error:
                    failures.update(dict.fromkeys(rows, str(error)))
                except Exception as error:  # whatever it is, the others must finish before it is raised
                    stop.append(error)
                else:
                    self.usage.cached += len(rows) - 1
                    for row in rows:
                        answers[row] = answer

        await asyncio.gather(*(work() for _ in range(min(self.settings.concurrency, len(distinct)))))
        if stop:
            raise stop[0]
        return answers, failures

    async def _ask(
        self, key: str, question: Question, image_key: str | None, max_tokens: int, top: int, stop: list[Exception]
    ) -> Answer:
        """An answer from the cache, from another call that is asking the same question, or from the server."""
        while True:
            kept = self._cache.get(key) if self._cache is not None else None
            if kept is not None and (kept.logprobs or not top):
                self.usage.cached += 1
                return kept
            if (twin := self._asking.get(key)) is None:
                break
            try:
                answer = await asyncio.shield(twin)
            except _Abandoned:
                continue
            self.usage.cached += 1
            return answer
        future = self._asking[key] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._request(question, image_key, max_tokens, top, stop)
            if self._cache is not None:
                self._cache.put(key, answer)
        except BaseException as error:
            future.set_exception(error if isinstance(error, Exception) else _Abandoned())
            future.exception()  # marks it as seen: perhaps nobody waits for it
            raise
        else:
            future.set_result(answer)
            return answer
        finally:
            del self._asking[key]

    async def _request(
        self, question: Question, image_key: str | None, max_tokens: int, top: int, stop: list[Exception]
    ) -> Answer:
        """Asks the server for its likeliest answer, or for a sampled one."""
        request: dict[str, Any] = {"max_tokens": max_tokens, "temperature": question.temperature}
        if question.temperature:
            request["seed"] = question.seed
        if top:
            request |= {"logprobs": True, "top_logprobs": top}
        request["messages"] = await self._messages(question, image_key, stop)
        answer = await self._complete(
            request, lambda completion: read_reply(completion, top=top), stop, kept=self._cache is not None
        )
        self.usage.answered += 1
        if top and not answer.logprobs:
            raise _Refused(
                "the server gave no log probabilities; start it with them (vLLM: --max-logprobs 20), or use a server "
                "and a model that have them (transformers serve has none)"
            )
        return answer

    async def sample(self, question: Question, settings: Mapping[str, Any]) -> list[Sampled]:
        """Asks the server for sampled answers; it may give fewer than the `n` in the settings.

        Raises:
            JudgeError: the server is down or refuses us; or, with `failures`, it refuses this question, or the image
                cannot be read.
        """
        keys, failures = await asyncio.to_thread(image_keys, [question])
        try:
            if failures:
                raise _Refused(failures[0])
            messages = await self._messages(question, keys[0], [])
            read = partial(read_choices, logprobs=bool(settings.get("logprobs")))
            sampled = await self._complete({**settings, "messages": messages}, read, [], kept=True)
            self.usage.answered += 1
            return sampled
        except _Refused as error:
            raise JudgeError.of({0: str(error)}, [None]) from None

    async def models(self) -> list[str]:
        """The models that the server lists, none if it keeps no list. Waits while it says that it is not ready (503).

        Raises:
            JudgeError: no server is there, it is still not ready, or it refuses the key.
        """
        until = time.monotonic() + _PATIENCE_WITH_LOADING
        while True:
            try:
                return await self._models()
            except _NotReady as error:
                problem = f"the server at {self.settings.base_url or 'the default address'} is not ready ({error})"
            if time.monotonic() > until:
                raise JudgeError(f"{problem}; run again when it is")
            logger.info("%s; waiting", problem)
            await asyncio.sleep(_FIRST_WAIT)

    async def _models(self) -> list[str]:
        try:
            listed = await asyncio.wait_for(self._client.models.list(), min(_PATIENCE_AT_FIRST, self.settings.timeout))
            return [str(model.id) for model in listed.data]
        except (openai.APIConnectionError, asyncio.TimeoutError) as error:
            reason = self._reason(error) if isinstance(error, openai.APIConnectionError) else "it does not answer"
            problem = (
                f"no server can be asked at {self.settings.base_url or 'the default address'}: {reason}. Start it, or "
                "check the address, which mostly ends in /v1"
            )
        except openai.APIStatusError as error:
            if error.status_code == 503:  # llama.cpp's while it loads the model
                raise _NotReady(self._reason(error)) from None
            if error.status_code not in (401, 403):
                return []
            problem = f"the server refuses the key in ${self.settings.key_name} ({self._reason(error)})"
        except (openai.APIError, UnusableReply, AttributeError, TypeError, ValueError):  # a page, not a list
            return []
        raise JudgeError(problem)  # outside of `except`, as in `_complete`

    async def _complete(
        self, request: dict[str, Any], read: Callable[[Any], T], stop: list[Exception], *, kept: bool
    ) -> T:
        """Asks the server until it answers, refuses, or has been tried often enough."""
        request = {"model": self.settings.model, **request}
        if self.settings.extra_body:
            request["extra_body"] = self.settings.extra_body
        for attempt in range(self.settings.retries + 1):
            problem: Exception
            try:
                async with self._free:  # the client's own time limit is for each part of a reply
                    completion = await asyncio.wait_for(self._create(request), self.settings.timeout)
                answer, bill = read(completion), read_bill(completion)
            except UnusableReply as error:
                raise _Refused(str(error)) from None
            except asyncio.TimeoutError:
                problem = GarbledReply(f"no answer within {self.settings.timeout:g} s")
            except (openai.APIError, GarbledReply, ValueError, RecursionError) as error:  # the last two: broken JSON
                if isinstance(error.__cause__, UnusableReply):  # the client before 3.0 takes it for a lost connection
                    raise _Refused(str(error.__cause__)) from None
                problem = error
            else:
                self._count(*bill)
                self._compare_names(getattr(completion, "model", None))
                return answer
            # Outside of `except`, so that the client's error, which holds the request and its key, is not chained.
            least = self._least_wait(problem)
            if attempt == self.settings.retries or stop:
                break
            wait = max(least, backoff(attempt, first=_FIRST_WAIT, longest=_LONGEST_WAIT))
            logger.info("asking %s again in %.1f s: %s", self.settings.model, wait, self._reason(problem))
            await asyncio.sleep(wait)
        advice = "run again to go on" if kept else "give `cache` a file, so that the next run goes on from here"
        raise JudgeError(
            f"the server of {self.settings.model!r} did not answer in {attempt + 1} tries, last: "
            f"{self._reason(problem)}. Answers so far are {'kept' if kept else 'lost'}; {advice}"
        )

    async def _create(self, request: dict[str, Any]) -> Any:
        """One request. Newer servers refuse `max_tokens`: they are told `max_completion_tokens`, from then on."""
        newer = {**request, "max_completion_tokens": request["max_tokens"]}
        del newer["max_tokens"]
        if self._length_field == "max_tokens":
            try:
                return await self._client.chat.completions.create(**request)
            except openai.BadRequestError as error:
                if "max_tokens" not in str(error):
                    raise
        completion = await self._client.chat.completions.create(**newer)
        self._length_field = "max_completion_tokens"
        return completion

    async def _messages(self, question: Question, image_key: str | None, stop: list[Exception]) -> list[dict[str, Any]]:
        """The conversation; with the system message in the first turn where it would not arrive by itself."""
        arrives = True
        if question.system is not None and self.settings.base_url is not None:  # OpenAI's own takes it
            if self._hears_system is None:
                self._hears_system = asyncio.ensure_future(self._probe_system(stop))
            try:
                arrives = await asyncio.shield(self._hears_system)
            except Exception:
                self._hears_system = None
                raise
        return chat_messages(question, await self._url(question, image_key), with_system=arrives)

    async def _probe_system(self, stop: list[Exception]) -> bool:
        """Whether system messages arrive. Some chat templates drop them without a word, some refuse them.

        A text is sent once in the user's turn and once as a system message: where it arrives, the server counts as many
        tokens. True also where it does not count.
        """
        counts = []
        for with_system in (False, True):
            messages = chat_messages(Question("Hello.", system=_PROBE), None, with_system=with_system)
            request = {"max_tokens": 1, "temperature": 0.0, "messages": messages}
            try:
                counts.append(await self._complete(request, lambda done: read_bill(done)[0], stop, kept=True))
            except _Refused:
                return not with_system
        return counts[0] - counts[1] < _LEAST_LOST

    async def _url(self, question: Question, image_key: str | None) -> str | None:
        """The image as text, made once for the questions about it that come together."""
        if image_key is None or question.image is None:
            return None
        url = self._urls.get(image_key)
        if url is None:
            url = self._urls[image_key] = asyncio.ensure_future(asyncio.to_thread(data_url, question.image))
            if len(self._urls) > _URLS_KEPT:
                del self._urls[next(iter(self._urls))]
        try:
            return await asyncio.shield(url)
        except ImageError as error:
            raise _Refused(str(error)) from None

    def _least_wait(self, problem: Exception) -> float:
        """Seconds that must pass before another try; raises if another try is of no use."""
        if not isinstance(problem, openai.APIStatusError):
            return 0.0
        status, reason, settings = problem.status_code, self._reason(problem), self.settings
        if status in (401, 403):
            raise JudgeError(f"the server refuses the key in ${settings.key_name} ({reason})")
        if status == 404:
            raise JudgeError(
                f"no model {settings.model!r} at {settings.base_url or 'the default server'} ({reason}); check the "
                "model's name, and that base_url ends as the server wants it, mostly with /v1"
            )
        if problem.code == "insufficient_quota":
            raise JudgeError(f"the account of the key in ${settings.key_name} is used up ({reason})")
        if status < 500 and status not in (408, 409, 429):
            raise _Refused(f"the server refuses the question ({reason})")
        wait = retry_after(problem.response.headers)
        if wait > _MOST_PATIENCE:
            raise JudgeError(f"the server wants us to wait {wait:.0f} s ({reason}); run again then")
        return wait

    def _reason(self, problem: Exception) -> str:
        """What went wrong, in one line and without the key, which some servers repeat in their messages."""
        text = str(problem)
        if isinstance(problem, openai.APIConnectionError):
            text = f"no connection ({problem.__cause__ or problem})"
        elif isinstance(problem, openai.APIStatusError):
            # where FastAPI's servers say why, which the client leaves out of its message
            detail = problem.body.get("detail") if isinstance(problem.body, dict) else None
            text += f" - {detail}" if detail and str(detail) not in text else ""
        elif not isinstance(problem, openai.APIError | GarbledReply):
            text = f"the reply is cut off ({problem})"
        return printable(text, self.settings.key())  # some servers repeat the key in their messages

    def _compare_names(self, told: Any) -> None:
        """Warns of each other model that answers, once."""
        asked, told = self.settings.model, printable(str(told or ""), self.settings.key())
        if told and told not in self._told and not is_same_model(asked, told):
            self._told.add(told)
            logger.warning(
                "%r was asked for, and %r answers, by its own word: check that it is the model you mean. llama.cpp "
                "answers whatever name it is asked for.",
                asked,
                told,
            )

    def _count(self, read: int, written: int) -> None:
        self.usage.input_tokens += read
        self.usage.output_tokens += written
        if self.settings.prices is not None:
            self.usage.cost += (read * self.settings.prices[0] + written * self.settings.prices[1]) / 1e6
