"""Serves a function of another environment as a metric: one file of the standard library, for Python 3.8 and newer.

    python worker_for.py my_metric.py:score --port 8100 --name polos --needs image,references

Copy it into any environment, old ones too. There `score(samples)` gets a list of samples, each with `caption`,
`references` (a list), `image` (a PIL image of mode RGB, where Pillow is) and `image_bytes`, and gives a list: a number
or None for each, or with --aspects so many numbers. capreward uses it by its address, as any reward service:

    capreward score captions.jsonl -m polos=http://127.0.0.1:8100
"""

from __future__ import annotations

import argparse
import base64
import collections
import contextlib
import functools
import hashlib
import hmac
import importlib
import io
import json
import math
import os
import sys
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LIMITS = {"max_body": 32_000_000, "max_candidates": 1024}
FORM = '{"samples": [{"candidates": ["A dog."], "image": {"base64": "..."}, "references": ["A cat."]}]}'


Sample = collections.namedtuple("Sample", "caption references image image_bytes")


def decoded(data: bytes) -> Any:
    """An image as Pillow reads it; None where Pillow is not."""
    try:
        from PIL import Image
    except ImportError:
        return None
    return Image.open(io.BytesIO(data)).convert("RGB")


def load(place: str) -> tuple[Any, bytes]:
    """The function of `file.py:function` or `module:function`, and the text of its file."""
    home, _, name = place.rpartition(":")
    # Python puts the folder of this script first, where files of any name may lie.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [os.getcwd(), *(path for path in sys.path if os.path.abspath(path) != here)]
    if home.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(home)))
        home = os.path.basename(home)[:-3]
    try:
        module = importlib.import_module(home)
        with open(str(module.__file__), "rb") as file:
            return getattr(module, name), file.read()
    except (ImportError, AttributeError, ValueError) as error:
        told = f"{place!r} cannot be loaded (from {os.getcwd()}): {error}"
        raise SystemExit(f"error: {told}; write file.py:function or module:function") from None


class Metric:
    """The function, with what clients ask about it."""

    def __init__(self, function: Any, code: bytes, options: argparse.Namespace) -> None:
        self.function, self.name = function, options.name
        self.aspects = (options.aspects or options.name).split(",")
        told = json.dumps([self.name, self.aspects]).encode()
        self.identity = hashlib.sha256(told + code).hexdigest()[:16]
        self.facts = {
            "metric": self.name,
            "identity": self.identity,
            "aspects": self.aspects,
            "aliases": {},
            "reads_images": "image" in options.needs,
            "reads_references": True,
            "needs_image": "image" in options.needs,
            "needs_references": "references" in options.needs,
            "range": options.range or [None, None],
            "default_weights": None,
            "paper": "none: a function of another environment",
        }
        self._turn = threading.Lock()
        self._known = functools.lru_cache(maxsize=32)(self._answer)  # a client that waited too long asks again

    def answer(self, body: bytes) -> dict[str, Any]:
        """The reply to a request; one at a time."""
        with self._turn:
            return self._known(body)

    def _answer(self, body: bytes) -> dict[str, Any]:
        replies = []
        for asked in json.loads(body)["samples"]:
            image = None if asked.get("image") is None else base64.b64decode(asked["image"]["base64"], validate=True)
            shown = None if image is None else decoded(image)
            given = [Sample(text, asked.get("references") or [], shown, image) for text in asked["candidates"]]
            scored = self.score(given)
            scores, errors = [list(each) for each in zip(*scored)]  # noqa: B905  # `strict` is newer than Python 3.8
            replies.append({"scores": scores, "errors": errors, "truncated": [False] * len(given)})
        return {"metric": self.name, "identity": self.identity, "aspects": self.aspects, "samples": replies}

    def score(self, samples: list[Sample]) -> list[tuple[list[float | None], str | None]]:
        """Scores of each sample, and why it has none; if the call fails, each sample is tried by itself."""
        try:
            values = self.function(samples)
            values = values.tolist() if hasattr(values, "tolist") else list(values)
            if len(values) != len(samples):
                raise ValueError(f"it gave {len(values)} values for {len(samples)} captions")
            return [self._read(value) for value in values]
        except Exception as error:
            if len(samples) > 1:
                return [self.score([sample])[0] for sample in samples]
            traceback.print_exc()
            return [([None] * len(self.aspects), f"{self.name} raised {type(error).__name__}: {error}"[:500])]

    def _read(self, value: Any) -> tuple[list[float | None], str | None]:
        value = value.tolist() if hasattr(value, "tolist") else value
        numbers = list(value) if isinstance(value, (list, tuple)) else [value]
        if any(each is None or not math.isfinite(each) for each in numbers):
            return [None] * len(self.aspects), f"{self.name} gave {value}"
        if len(numbers) != len(self.aspects):
            raise ValueError(f"it gave {len(numbers)} numbers for the aspects {', '.join(self.aspects)}")
        return [float(each) for each in numbers], None


def make_handler(metric: Metric, token: str | None) -> type[BaseHTTPRequestHandler]:
    """The class that answers requests, each in a thread of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60  # seconds that a client may take for a part of its request

        def do_GET(self) -> None:
            if self.path == "/health":
                self.answer(200, {"status": "ok"})
            elif self.is_allowed():
                self.answer(200, {"metrics": {metric.name: metric.facts}, "limits": LIMITS})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if length > LIMITS["max_body"]:
                self.answer(413, {"error": f"the body has more than {LIMITS['max_body']} bytes"})
            elif self.is_allowed():
                try:
                    self.answer(200, metric.answer(self.rfile.read(length)))
                except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
                    told = f"the body cannot be read ({type(error).__name__}: {error}); it looks like {FORM}"
                    self.answer(422, {"error": told})

        def is_allowed(self) -> bool:
            given = self.headers.get("Authorization", "").partition(" ")[2].strip()
            right = not token or hmac.compare_digest(given.encode(), token.encode())
            if not right:
                self.answer(401, {"error": "send the service's token as 'Authorization: Bearer TOKEN'"})
            return right

        def answer(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.close_connection |= status != 200  # what is left of a body would be taken for the next request
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *parts: Any) -> None:
            pass

    return Handler


def main(arguments: list[str] | None = None) -> None:
    """Serves until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("function", help="file.py:function or module:function")
    parser.add_argument("--name", help="of the metric; default: the function's")
    parser.add_argument("--aspects", help="names of the numbers that the function gives, if several: a,b,c")
    parser.add_argument("--needs", default="image", help="image,references or one; default: image")
    parser.add_argument("--range", type=lambda text: list(map(float, text.split(","))), help="lowest,highest score")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--host", default="127.0.0.1", help="others than this machine need CAPREWARD_TOKEN to be set")
    options = parser.parse_args(arguments)
    token = os.environ.get("CAPREWARD_TOKEN")
    if options.host not in ("127.0.0.1", "localhost", "::1") and not token:
        parser.error("--host lets other machines in: set the environment variable CAPREWARD_TOKEN, as the clients do")
    options.name = options.name or options.function.rpartition(":")[2]
    metric = Metric(*load(options.function), options)
    try:
        server = ThreadingHTTPServer((options.host, options.port), make_handler(metric, token))
    except OSError as error:
        raise SystemExit(f"error: cannot listen at {options.host}, port {options.port}: {error}") from None
    print(f"{options.name} at http://{options.host}:{server.server_address[1]}", file=sys.stderr, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
