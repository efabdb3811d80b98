"""Serves a function of another environment as a metric: one file of the standard library, for Python 3.8 and newer.

    python worker_for.py my_metric.py:score --port 8100 --name polos --needs image,references --weights polos.ckpt

Copy it into any environment, old ones too. There `score(samples)` gets a list of samples, each with `caption`,
`references` (a list), `image` (a PIL image of mode RGB, where Pillow is) and `image_bytes` (a PNG of the same pixels),
and gives a list: a number or None for each, or with --aspects so many numbers. capreward uses it by its address, as any
reward service:

    capreward score captions.jsonl -m polos=http://127.0.0.1:8100
"""

from __future__ import annotations

import argparse
import base64
import collections
import contextlib
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

LIMITS = {"max_body": 256_000_000, "max_candidates": 1024}
FORM = '{"samples": [{"candidates": ["A dog."], "image": {"base64": "..."}, "references": ["A cat."]}]}'
MOST_REPLIES = 32  # that are remembered: a client that waited too long asks again


Sample = collections.namedtuple("Sample", "caption references image image_bytes")


def decoded(data: bytes) -> Any:
    """The image in a PNG of 8-bit RGB; None where Pillow is not.

    Clients of capreward send every image as such a file, with its orientation, transparency and depth resolved. So the
    function sees the same pixels as all other metrics, whatever the versions of Pillow and of its decoders are.
    """
    is_plain_png = data.startswith(b"\x89PNG\r\n") and data[24:26] == b"\x08\x02"  # its bits a channel, and RGB
    if not is_plain_png:
        raise ValueError("an image must be a PNG of mode RGB with 8 bits a channel, as capreward sends it")
    try:
        from PIL import Image
    except ImportError:
        return None
    return Image.open(io.BytesIO(data)).convert("RGB")


def content_hash(path: str) -> bytes:
    """A hash of a file, or of the names and contents of all files below a folder."""
    digest = hashlib.sha256()
    files = [path] if os.path.isfile(path) else []
    for folder, _, names in os.walk(path):
        files += [os.path.join(folder, name) for name in names]
    for file in sorted(files):
        digest.update(os.path.relpath(file, path).encode() + b"\0")  # a folder may be moved
        with open(file, "rb") as opened:
            for block in iter(lambda: opened.read(1 << 20), b""):
                digest.update(block)
    return digest.digest()


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
        problem = f"{place!r} cannot be loaded (from {os.getcwd()}): {error}"
        raise SystemExit(f"error: {problem}; write file.py:function or module:function") from None


class Metric:
    """The function, with what clients ask about it."""

    def __init__(self, function: Any, code: bytes, options: argparse.Namespace) -> None:
        self.function, self.name = function, options.name
        self.aspects = (options.aspects or options.name).split(",")
        facts = json.dumps([self.name, self.aspects]).encode()
        weights = b"".join(content_hash(path) for path in options.weights)
        self.identity = hashlib.sha256(facts + code + weights).hexdigest()[:16]
        self.facts = {
            "metric": self.name,
            "identity": self.identity,
            "aspects": self.aspects,
            "aliases": {},
            "reads_images": True,
            "reads_references": True,
            "wants_png": True,
            "needs_image": "image" in options.needs,
            "needs_references": "references" in options.needs,
            "range": options.range or [None, None],
            "default_weights": None,
            "paper": "none: a function of another environment",
        }
        self._turn = threading.Lock()
        self._replies = collections.OrderedDict()  # type: collections.OrderedDict[bytes, dict[str, Any]]

    def answer(self, body: bytes) -> dict[str, Any]:
        """The reply to a request; one at a time. A reply without a failure is remembered."""
        key = hashlib.sha256(body).digest()
        with self._turn:
            if key in self._replies:
                return self._replies[key]
            reply = self._answer(body)
            if all(error is None for sample in reply["samples"] for error in sample["errors"]):
                self._replies[key] = reply
            if len(self._replies) > MOST_REPLIES:
                self._replies.popitem(last=False)
            return reply

    def _answer(self, body: bytes) -> dict[str, Any]:
        replies = []
        for request in json.loads(body)["samples"]:
            image = data = None
            if request.get("image") is not None:
                data = base64.b64decode(request["image"]["base64"], validate=True)
                image = decoded(data)
            references = request.get("references") or []
            samples = [Sample(caption, references, image, data) for caption in request["candidates"]]
            rows = self.score(samples)
            replies.append(
                {
                    "scores": [scores for scores, _ in rows],
                    "errors": [error for _, error in rows],
                    "truncated": [False] * len(rows),
                }
            )
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
        if any(number is None or not math.isfinite(number) for number in numbers):
            return [None] * len(self.aspects), f"{self.name} gave {value}"
        if len(numbers) != len(self.aspects):
            raise ValueError(f"it gave {len(numbers)} numbers for the aspects {', '.join(self.aspects)}")
        return [float(number) for number in numbers], None


def make_handler(metric: Metric, token: str | None) -> type[BaseHTTPRequestHandler]:
    """The class that answers requests, each in a thread of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60  # seconds that a client may take for a part of its request
        disable_nagle_algorithm = True  # else a body waits 40 ms until the client has confirmed its headers

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
                    problem = f"the body cannot be read ({type(error).__name__}: {error}); it looks like {FORM}"
                    self.answer(422, {"error": problem})

        def is_allowed(self) -> bool:
            sent = self.headers.get("Authorization", "").partition(" ")[2].strip()
            is_right = not token or hmac.compare_digest(sent.encode(), token.encode())
            if not is_right:
                self.answer(401, {"error": "send the service's token as 'Authorization: Bearer TOKEN'"})
            return is_right

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
    parser.add_argument(
        "--weights",
        action="append",
        default=[],
        metavar="PATH",
        help="file or folder of the weights; other weights under one name are then told apart. Repeat it for several",
    )
    parser.add_argument("--range", type=lambda text: list(map(float, text.split(","))), help="lowest,highest score")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--host", default="127.0.0.1", help="others than this machine need CAPREWARD_TOKEN to be set")
    options = parser.parse_args(arguments)
    token = os.environ.get("CAPREWARD_TOKEN")
    if options.host not in ("127.0.0.1", "localhost", "::1") and not token:
        parser.error("--host lets other machines in: set the environment variable CAPREWARD_TOKEN, as the clients do")
    options.name = options.name or options.function.rpartition(":")[2]
    missing = [path for path in options.weights if not os.path.exists(path)]
    if missing:
        parser.error(f"--weights: there is no file or folder {missing[0]} (from {os.getcwd()})")
    metric = Metric(*load(options.function), options)
    try:
        server = ThreadingHTTPServer((options.host, options.port), make_handler(metric, token))
    except OSError as error:
        raise SystemExit(f"error: cannot listen at {options.host}, port {options.port}: {error}") from None
    print(f"{options.name} at http://{options.host}:{server.server_address[1]}", file=sys.stderr, flush=True)
    if not options.weights:
        print("without --weights, other weights under the same code are taken for the same metric", file=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
