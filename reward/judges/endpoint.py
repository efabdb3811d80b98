"""An OpenAI-compatible server: how it is reached, in which words it is asked, and what its refusals mean."""

from __future__ import annotations

import logging
import os
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import openai

from reward.errors import JudgeError
from reward.http_client import GarbledReply, UnusableReply, printable, retry_after, whole_reply
from reward.judges.chat import Refused, Unanswered

if TYPE_CHECKING:
    from reward.judges.server import ServerJudge

logger = logging.getLogger(__name__)

_FEW_ALTERNATIVES = 5  # what a server that allows fewer than we want allows at least
_MOST_PATIENCE = 900.0  # seconds: a server may ask for a longer wait than ours, but not for hours
_PATIENCE_AT_FIRST = 15.0  # seconds until a server that does not even list its models counts as absent
_PATIENCE_WITH_LOADING = 120.0  # seconds for a server that is there but says that it is not ready
_LOADING_WAIT = 0.5  # seconds between two looks at it
_WARNING_INTERVAL = 10.0  # seconds between two warnings about it


class _Client(openai.DefaultHttpxClient):
    """The OpenAI client's own connection; a reply that is too large once unpacked, or never ends, is given up."""

    seconds = 60.0

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Sends a request and reads the whole reply: the client's own time limit is for each part of one."""
        return whole_reply(super().send(request, stream=True, **options), self.seconds)


class Endpoint:
    """A server, with the key that only this object holds; for any number of threads.

    Args:
        judge: has the settings.

    Attributes:
        client: of the package openai.
        address: where requests go.
        place: the address for messages.
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
        self.place = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._proxy = None if is_here else _proxy_for(self.address)
        self._length_field = "max_tokens"
        self._most_alternatives = 1_000  # until the server says that it allows fewer

    def post(self, request: dict[str, Any]) -> Any:
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
                return self.client.post("/chat/completions", cast_to=object, body=body)
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

    def models(self) -> list[str]:
        """See `ServerJudge.models`. Waits while the server says that it is not ready (503)."""
        client = self.client.with_options(timeout=min(_PATIENCE_AT_FIRST, self._judge.timeout))
        deadline = time.monotonic() + _PATIENCE_WITH_LOADING
        warning_at = time.monotonic() + _WARNING_INTERVAL
        while True:
            try:
                reply: Any = client.get("/models", cast_to=object)
                return [str(model["id"]) for model in reply["data"]]
            except openai.APIConnectionError as error:
                advice = "start it, or check the address, as in http://localhost:8000/v1#MODEL"
                problem = f"no server can be asked at {self.place}: {self.reason(error)}; {advice}"
                break
            except openai.APIStatusError as error:
                if error.status_code in (401, 403):
                    problem = f"the server refuses the key in ${self._judge.key_name} ({self.reason(error)})"
                    break
                if error.status_code != 503:  # llama.cpp's while it loads the model
                    return []
                problem = f"the server at {self.place} is not ready ({self.reason(error)}); run again when it is"
            except (openai.APIError, UnusableReply, LookupError, TypeError, ValueError):  # a page, not a list
                return []
            if time.monotonic() > deadline:
                break
            if time.monotonic() > warning_at:
                warning_at += _WARNING_INTERVAL
                logger.warning("still waiting for a list of models: %s", problem)
            time.sleep(_LOADING_WAIT)
        raise JudgeError(problem)  # outside of `except`: the client's error, which holds the key, must not be chained

    def check_hope(self, problem: Exception) -> None:
        """Raises if another try is of no use: JudgeError where all questions are refused, Refused where this one is.

        Unanswered is raised where it may be either.
        """
        if not isinstance(problem, openai.APIStatusError):
            return
        reason = self.reason(problem)
        status = problem.status_code
        key = f"the key in ${self._judge.key_name}"
        if status == 401:
            raise JudgeError(f"the server refuses {key} ({reason})")
        if status == 402 or problem.code == "insufficient_quota":
            raise JudgeError(f"the account of {key} is used up ({reason})")
        if status == 403:
            raise Unanswered(f"the server refuses {key}, or the question ({reason})")
        if status == 404:
            raise Unanswered(
                f"no model {self._judge.model!r} at {self.place} ({reason}); check the model's name, and that "
                "base_url ends as the server wants it, mostly with /v1"
            )
        if 300 <= status < 400:
            target = self.without_key(problem.response.headers.get("location", "another address"))
            raise JudgeError(f"the server at {self.place} sends us on to {target}; give that address as base_url")
        if status < 500 and status not in (408, 409, 429):
            advice = ""
            if "temperature" in reason:
                advice = '; say how it is to sample, as in extra_body={"temperature": 1}'
            raise Refused(f"the server refuses the question ({reason}){advice}")
        wait = requested_wait(problem)
        if wait > _MOST_PATIENCE:
            raise JudgeError(f"the server wants us to wait {wait:.0f} s ({reason}); run again then")

    def reason(self, problem: Exception) -> str:
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
        if self._proxy is not None and not isinstance(problem, UnusableReply):
            text += f", by the proxy {self._proxy}"
        return self.without_key(text)

    def without_key(self, text: str) -> str:
        """What a server said, in one line and without the key."""
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


def _proxy_for(address: str) -> str | None:
    """The proxy of the environment that requests to an address take, without its user and password."""
    url = urlsplit(address)
    if proxy_bypass(url.hostname or ""):
        return None
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return None if proxy is None else proxy.rpartition("@")[2]
