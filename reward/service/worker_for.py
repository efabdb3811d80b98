"""Serves a function of another environment as a metric: one file of the standard library, for Python 3.8 and newer.

    python worker_for.py my_metric.py:score --port 8100 --name polos --needs image,references

Copy it into any environment, old ones too. There `score(samples)` gets a list of samples, each with `caption` (also
`candidate`), `references` (a list), `image` (a PIL image of mode RGB, where Pillow is) and `image_bytes`, and gives a
list: a number or None for each, or with --aspects so many numbers. `score(prompts, completions, **columns)`, as
trainers call a reward, works as well. capreward uses it by its address, as any reward service:

    capreward score captions.jsonl -m polos=http://127.0.0.1:8100
    RemoteReward("http://127.0.0.1:8100")
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import importlib
import importlib.util
import inspect
import io
import json
import math
import os
import queue
import sys
import threading
import traceback
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["main"]

LIMITS = {"max_body": 32_000_000, "max_candidates": 1024}


class Refused(Exception):
    """A request that gets no score, with its HTTP status."""

    def __init__(self, reason: str, status: int = 422) -> None:
        super().__init__(reason)
        self.status = status


class Sample:
    """A caption to score."""

    def __init__(self, caption: str, references: list[str], picture: dict[str, Any] | None) -> None:
        self.caption = self.candidate = caption
        self.references = references
        self._picture = picture

    @property
    def image_bytes(self) -> bytes | None:
        """The file of the image; None without."""
        return None if self._picture is None else self._picture["bytes"]

    @property
    def image(self) -> Any:
        """The image, decoded once for all captions of a request; None without."""
        if self._picture is not None and "image" not in self._picture:
            from PIL import Image

            self._picture["image"] = Image.open(io.BytesIO(self._picture["bytes"])).convert("RGB")
        return None if self._picture is None else self._picture["image"]


def load(place: str) -> tuple[Any, bytes]:
    """The function of `file.py:function` or `module:function`, and the text of its file."""
    home, _, name = place.rpartition(":")
    if not home:
        raise SystemExit(f"error: {place!r} is no function: write file.py:function or module:function")
    here = os.path.dirname(os.path.abspath(__file__))
    # Python puts the folder of this script first, where files of any name may lie.
    sys.path[:] = [os.getcwd(), *(path for path in sys.path if os.path.abspath(path) != here)]
    if home.endswith(".py"):
        if not os.path.isfile(home):
            raise SystemExit(f"error: there is no file {home} (from {os.getcwd()})")
        sys.path.insert(1, os.path.dirname(os.path.abspath(home)))
        spec: Any = importlib.util.spec_from_file_location(os.path.basename(home)[:-3], home)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(home)
    if not hasattr(module, name):
        known = ", ".join(sorted(key for key, each in vars(module).items() if inspect.isroutine(each)))
        raise SystemExit("error: {} has no function {!r}; it has: {}".format(home, name, known or "none"))
    function = getattr(module, name)
    with open(str(module.__file__), "rb") as file:
        return function() if isinstance(function, type) else function, file.read()


def call(function: Any, samples: list[Sample]) -> Any:
    """What the function gives for some samples; it is told by its parameters whether it is a trainer's reward."""
    parameters = inspect.signature(function).parameters.values()
    names = {each.name for each in parameters}
    if not names & {"prompts", "completions"}:
        return function(samples)
    columns: dict[str, Any] = {"prompts": [None] * len(samples), "completions": [each.caption for each in samples]}
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
    if takes_all or names & {"image", "images"}:
        pictures = [each.image for each in samples]
        columns.update(image=pictures, images=[[] if each is None else [each] for each in pictures])
    columns["references"] = [each.references for each in samples]
    return function(**{name: each for name, each in columns.items() if takes_all or name in names})


class Metric:
    """The function with what clients ask about it."""

    def __init__(self, function: Any, code: bytes, options: argparse.Namespace) -> None:
        self.function, self.name = function, options.name
        self.aspects = options.aspects or [self.name]
        facts = [self.name, self.aspects, options.checkpoint, hashlib.sha256(code).hexdigest()]
        self.identity = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
        low, high = options.range or (None, None)
        needs_image, needs_references = ("image" in options.needs), ("references" in options.needs)
        self.facts = {
            "metric": self.name,
            "identity": self.identity,
            "version": "worker_for",
            "aspects": self.aspects,
            "reads_images": needs_image,
            "reads_references": True,
            "aliases": {},
            "needs_image": needs_image,
            "needs_references": needs_references,
            "range": [low, high],
            "default_weights": None,
            "paper": options.checkpoint or "none: a function of another environment",
        }

    def score(self, samples: list[Sample]) -> list[tuple[list[float] | None, str | None]]:
        """(scores or None, reason or None) of each sample; if the call fails, each sample is tried by itself."""
        try:
            values = call(self.function, samples)
            values = values.tolist() if hasattr(values, "tolist") else list(values)
            if len(values) != len(samples):
                raise ValueError(f"it gave {len(values)} values for {len(samples)} captions")
            return [self._read(value) for value in values]
        except Exception as error:
            if len(samples) > 1:
                return [self.score([sample])[0] for sample in samples]
            traceback.print_exc()
            return [(None, f"{self.name} raised {type(error).__name__}: {error}"[:500])]

    def _read(self, value: Any) -> tuple[list[float] | None, str | None]:
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, dict):
            value = [value[name] for name in self.aspects]
        numbers = list(value) if isinstance(value, (list, tuple)) else [value]
        if value is None or any(each is None or not math.isfinite(each) for each in numbers):
            return None, f"{self.name} gave {value}"
        if len(numbers) != len(self.aspects):
            raise ValueError("it gave {} numbers for the aspects {}".format(len(numbers), ", ".join(self.aspects)))
        return [float(each) for each in numbers], None


def read(body: bytes, metric: Metric) -> tuple[list[Sample], list[int]]:
    """The samples of a request, and how many captions each of its entries has."""
    try:
        request = json.loads(body)
        if request.get("metric") not in (None, metric.name):
            raise Refused("metric must be {!r}, got {!r}".format(metric.name, request["metric"]))
        if request.get("weights") is not None:
            raise Refused("weights are for the client: leave them out, and weigh the scores")
        samples, counts = [], []
        for entry in request["samples"]:
            references = entry.get("references") or []
            if not all(isinstance(text, str) for text in [*entry["candidates"], *references]):
                raise Refused("candidates and references must be lists of texts")
            picture = None if entry.get("image") is None else {"bytes": image_bytes(entry["image"])}
            samples += [Sample(caption, references, picture) for caption in entry["candidates"]]
            counts.append(len(entry["candidates"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        form = '{"samples": [{"candidates": ["A dog."], "image": {"base64": "..."}, "references": ["A cat."]}]}'
        reason = f"the body cannot be read ({type(error).__name__}: {error}); it looks like {form}"
        raise Refused(reason) from None
    if len(samples) > LIMITS["max_candidates"]:
        raise Refused("a request may hold {} captions; send several requests".format(LIMITS["max_candidates"]))
    return samples, counts


def image_bytes(image: Any) -> bytes:
    """The bytes of an image that came as base64 or as a data URL."""
    text: Any = image.get("base64", image.get("url")) if isinstance(image, dict) else image
    with suppress(AttributeError, ValueError):
        head, comma, data = text.partition(",")
        found = base64.b64decode(data if comma and head.startswith("data:") else text, validate=True)
        if found:
            return found
    raise Refused("an image is base64 or a data URL here, and no path is read: leave out image_root=")


def reply(metric: Metric, counts: list[int], scored: list[Any]) -> dict[str, Any]:
    """The answer to a request."""
    entries: list[dict[str, Any]] = []
    start = 0
    for count in counts:
        part = scored[start : start + count]
        start += count
        rows = [scores or [None] * len(metric.aspects) for scores, _ in part]
        entries.append(
            {
                "scores": rows,
                "rewards": [None if row[0] is None else sum(row) / len(row) for row in rows],
                "errors": [reason for _, reason in part],
                "truncated": [False] * count,
            }
        )
    return {"metric": metric.name, "identity": metric.identity, "aspects": metric.aspects, "samples": entries}


class Jobs:
    """Requests that wait. One that comes again, since its client has waited for too long, is not scored twice."""

    def __init__(self, metric: Metric, most: int) -> None:
        self.metric, self.most = metric, most
        self._waiting: queue.Queue[dict[str, Any]] = queue.Queue()
        self._under_way: dict[bytes, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def ask(self, body: bytes) -> dict[str, Any]:
        """The reply to a request; called in a thread of its own."""
        samples, counts = read(body, self.metric)
        key = hashlib.sha256(body).digest()
        with self._lock:
            job = self._under_way.get(key)
            if job is None:
                job = self._under_way[key] = {"key": key, "samples": samples, "done": threading.Event()}
                self._waiting.put(job)
        job["done"].wait()
        return reply(self.metric, counts, job["scored"])

    def work(self) -> None:
        """Scores for ever, in the main thread: what came meanwhile goes into one call."""
        while True:
            taken = [self._waiting.get()]
            while not self._waiting.empty() and sum(len(job["samples"]) for job in taken) < self.most:
                taken.append(self._waiting.get())
            scored = self.metric.score([sample for job in taken for sample in job["samples"]])
            for job in taken:
                job["scored"], scored = scored[: len(job["samples"])], scored[len(job["samples"]) :]
                with self._lock:
                    del self._under_way[job["key"]]
                job["done"].set()


def make_handler(jobs: Jobs, token: str | None) -> type[BaseHTTPRequestHandler]:
    """The class that answers requests, each in a thread of its own."""
    metric = jobs.metric

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60  # seconds that a client may take for a part of its request

        def do_GET(self) -> None:
            if self.path == "/health":
                self.answer(200, {"status": "ok"})
            else:
                self.guarded(self.info)

        def do_POST(self) -> None:
            self.guarded(self.scored)

        def guarded(self, work: Any) -> None:
            try:
                given = self.headers.get("Authorization", "").partition(" ")[2].strip()
                if token and not hmac.compare_digest(given.encode(), token.encode()):
                    raise Refused("send the service's token as 'Authorization: Bearer TOKEN'", 401)
                self.answer(200, work())
            except Refused as refusal:
                self.close_connection = True  # what is left of a body would be taken for the next request
                self.answer(refusal.status, {"error": str(refusal)})

        def info(self) -> dict[str, Any]:
            if self.path != "/info":
                raise Refused("there is no " + self.path, 404)
            return {"version": "worker_for", "metrics": {metric.name: metric.facts}, "limits": LIMITS, "workers": 1}

        def scored(self) -> dict[str, Any]:
            if self.path != "/score":
                raise Refused("there is no " + self.path, 404)
            length = self.headers.get("Content-Length", "")
            if not length.isdigit():
                raise Refused("send Content-Length", 411)
            if int(length) > LIMITS["max_body"]:
                raise Refused("the body has more than {} bytes".format(LIMITS["max_body"]), 413)
            return jobs.ask(self.rfile.read(int(length)))

        def answer(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if self.close_connection:
                self.send_header("Connection", "close")
            with suppress(OSError):  # the client has gone
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *parts: Any) -> None:
            pass

    return Handler


def words(text: str) -> list[str]:
    """A list that is written with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def main(arguments: list[str] | None = None) -> None:
    """Serves until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("function", help="file.py:function or module:function")
    parser.add_argument("--name", help="of the metric; default: the function's")
    parser.add_argument("--aspects", type=words, help="names of the numbers that the function gives, if several: a,b,c")
    parser.add_argument("--needs", type=words, default=["image"], help="image,references or one; default: image")
    parser.add_argument("--range", type=lambda text: tuple(map(float, text.split(","))), help="lowest,highest score")
    parser.add_argument("--checkpoint", default="", help="what it scores with, in words: a client keeps to it")
    parser.add_argument("--batch", type=int, default=64, help="most captions of several requests in one call")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--host", default="127.0.0.1", help="others than this machine need CAPREWARD_TOKEN to be set")
    options = parser.parse_args(arguments)
    token = os.environ.get("CAPREWARD_TOKEN")
    if options.host not in ("127.0.0.1", "localhost", "::1") and not token:
        parser.error("--host lets other machines in: set the environment variable CAPREWARD_TOKEN, as the clients do")
    function, code = load(options.function)
    options.name = options.name or options.function.rpartition(":")[2]
    jobs = Jobs(Metric(function, code, options), options.batch)
    try:
        server = ThreadingHTTPServer((options.host, options.port), make_handler(jobs, token))
    except OSError as error:
        raise SystemExit(f"error: cannot listen at {options.host}, port {options.port}: {error}") from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://{options.host}:{server.server_address[1]}"
    print(f"{options.name} at {address}", file=sys.stderr, flush=True)
    with suppress(KeyboardInterrupt):
        jobs.work()


if __name__ == "__main__":
    main()
