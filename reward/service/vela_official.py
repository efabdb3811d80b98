"""The published VELA behind HTTP, in its authors' own environment; answers `RemoteScorer` as `capreward serve` does.

Their code (github.com/Ka2ukiMatsuda/VELA) wants Python 3.10, torch 2.2.2 and transformers below 5, where this package
cannot run. So this file needs nothing but the standard library, and that environment's torch and Pillow.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["OfficialVela", "make_server", "run"]

METRIC = "vela"  # the name that clients ask for; `vela-official` is taken, too
MODES = {"descriptiveness": "desc", "relevance": "rel", "fluency": "flu"}
CONFIG = "configs/config_regressor.yaml"
LIMITS = {
    "max_body": 32_000_000,  # bytes of a request
    "max_pixels": 25_000_000,
    "max_candidates": 1024,  # captions of a request
    "max_characters": 20_000,  # of a caption or a reference
    "max_waiting": 64,  # requests at a time
    "timeout": 60.0,  # seconds that a client has for its request
}
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")


class Refusal(Exception):
    """A request that is answered by a status other than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class OfficialVela:
    """The authors' model: scores of captions on three aspects.

    Args:
        repository: clone of their repository, with the weights where its configuration says.
        device: such as `cuda` or `cpu`.
        batch_size: rows of a forward pass; a caption is three rows, one an aspect.

    Raises:
        SystemExit: the folder does not hold their code.
    """

    def __init__(self, repository: str | Path, device: str = "cuda", batch_size: int = 8) -> None:
        folder = Path(repository).resolve()
        if not (folder / CONFIG).is_file():
            raise SystemExit(f"error: {folder} has no {CONFIG}: give --repository the clone of Ka2ukiMatsuda/VELA")
        sys.path.insert(0, str(folder))
        os.chdir(folder)  # their configurations name files from there
        from dataloader.vela_collate_fn import VELACollateFn
        from vela import load_pretrained_model

        self.device, self.batch_size = device, batch_size
        self.model: Any = load_pretrained_model(cfg_path=CONFIG, device=device)
        self.model.eval()
        self.collate: Any = VELACollateFn(self.model.cfg, device=device)
        self.identity = self._identity()

    def score(self, captions: list[tuple[Image.Image, list[str], str]]) -> list[tuple[list[float] | None, str | None]]:
        """(scores of the three aspects in [0, 1], None) of each (image, references, caption), or (None, reason)."""
        try:
            return [(scores, None) for scores in self._forward(captions)]
        except Exception as error:  # of whatever kind; one caption must not spoil the others
            if len(captions) == 1:
                return [(None, f"{type(error).__name__}: {error}"[:500])]
        return [each for caption in captions for each in self.score([caption])]

    def _forward(self, captions: list[tuple[Image.Image, list[str], str]]) -> list[list[float]]:
        import torch
        from torch.utils.data import DataLoader

        rows: Any = [
            {"imgid": str(number), "img": image, "refs": references, "cand": caption, "mode": mode, "score": 0.0}
            for number, (image, references, caption) in enumerate(captions)
            for mode in MODES.values()
        ]
        values: list[float] = []
        with torch.no_grad():
            for batch, _ in DataLoader(rows, batch_size=self.batch_size, shuffle=False, collate_fn=self.collate):
                output = self.model(**self.model.move_batch_to_device(batch, self.device))
                values += output.float().flatten().clamp(0, 1).tolist()
        if len(values) != len(rows) or any(value != value for value in values):
            raise ValueError(f"the model gave {len(values)} numbers for {len(rows)} rows, or one that is not a number")
        return [values[start : start + len(MODES)] for start in range(0, len(values), len(MODES))]

    def _identity(self) -> str:
        """Changes with the weights: names, shapes and first values of all tensors."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            first = tensor.detach().flatten()[:64].float().cpu().tolist()
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {first}".encode())
        return f"vela-official {digest.hexdigest()[:16]}"


def make_server(
    model: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8123,
    image_root: str | Path | None = None,
    token: str | None = None,
) -> ThreadingHTTPServer:
    """A server that is ready for `serve_forever()`.

    Args:
        model: an `OfficialVela`, or anything with its `score` and `identity`.
        host: an address other than loopback needs a token.
        port: 0 takes a free one.
        image_root: folder of the images that requests may name by path; None refuses paths. Addresses are always
            refused.
        token: what clients must send as `Authorization: Bearer TOKEN`; None lets everyone in.

    Raises:
        SystemExit: the server would be open to other machines.
    """
    if token is None and not ipaddress.ip_address(host).is_loopback:
        raise SystemExit(f"error: {host} lets other machines in: set a token in CAPREWARD_TOKEN, or keep to 127.0.0.1")

    class Handler(_Handler):
        timeout = LIMITS["timeout"]

    Handler.model, Handler.token = model, token
    Handler.root = None if image_root is None else Path(image_root).resolve()
    Handler.places, Handler.turn = threading.BoundedSemaphore(int(LIMITS["max_waiting"])), threading.Lock()
    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = False  # `server_close` waits for requests under way
    return server


class _Handler(BaseHTTPRequestHandler):
    model: Any
    root: Path | None
    token: str | None
    places: threading.BoundedSemaphore
    turn: threading.Lock

    def do_GET(self) -> None:
        self._reply(self._get)

    def do_POST(self) -> None:
        self._reply(self._post)

    def log_message(self, format: str, *values: Any) -> None:
        """Requests are not logged: they hold images and captions."""

    def _reply(self, answer: Any) -> None:
        status, retry = 200, False
        try:
            sent, wanted = self.headers.get("Authorization", ""), f"Bearer {self.token}"
            is_open = self.token is None or self.path == "/health"
            if not is_open and not hmac.compare_digest(sent.encode("utf-8", "replace"), wanted.encode()):
                raise Refusal(401, "the token is missing or wrong")
            body = answer()
        except Refusal as error:
            status, body, retry = error.status, {"detail": str(error)}, error.status == 503
        except OSError:  # the client is gone or too slow
            return
        except Exception as error:  # a fault of ours, which must not look like a lost connection
            status, body = 500, {"detail": f"{type(error).__name__}: {error}"[:500]}
        data = json.dumps(body).encode()
        self.send_response(status)
        if retry:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _get(self) -> dict[str, Any]:
        if self.path == "/health":
            return {"status": "ok"}
        if self.path != "/info":
            raise Refusal(404, "there are GET /health, GET /info and POST /score")
        facts = {
            "metric": METRIC,
            "identity": self.model.identity,
            "version": "vela-official",
            "aspects": list(MODES),
            "aliases": {short: aspect for aspect, short in MODES.items()},
            "reads_images": True,
            "reads_references": True,
            "needs_image": True,
            "needs_references": True,
            "range": [0.0, 1.0],
            "default_weights": None,
            "paper": "VELA: An LLM-Hybrid-as-a-Judge Approach for Evaluating Long Image Captions",
        }
        return {"metrics": {METRIC: facts}, "limits": LIMITS}

    def _post(self) -> dict[str, Any]:
        if self.path != "/score":
            raise Refusal(404, "there are GET /health, GET /info and POST /score")
        if not self.places.acquire(blocking=False):
            raise Refusal(503, "too many requests at a time")
        try:
            return self._score(self._body())
        finally:
            self.places.release()

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Refusal(411, "a request needs Content-Length")
        if int(length) > LIMITS["max_body"]:
            raise Refusal(413, f"the request has {length} bytes, and at most {LIMITS['max_body']} are taken")
        end, left, parts = time.monotonic() + LIMITS["timeout"], int(length), []
        while left:
            part = self.rfile.read1(min(left, 2**16))
            if not part or time.monotonic() > end:
                raise Refusal(408, "the request did not arrive in time")
            parts.append(part)
            left -= len(part)
        try:
            body = json.loads(b"".join(parts))
        except (ValueError, RecursionError):
            raise Refusal(422, "the request is not JSON") from None
        if not isinstance(body, dict) or not isinstance(body.get("samples"), list):
            raise Refusal(422, "the request needs `samples`, a list")
        if body.get("metric", METRIC) not in (METRIC, "vela-official", None):
            raise Refusal(404, f"this service has one metric, {METRIC!r}")
        return body

    def _score(self, body: dict[str, Any]) -> dict[str, Any]:
        samples = [self._checked(each) for each in body["samples"]]
        if sum(len(captions) for captions, _, _ in samples) > LIMITS["max_candidates"]:
            raise Refusal(413, f"at most {LIMITS['max_candidates']} captions a request")
        replies = []
        for captions, references, image in samples:
            with self.turn:  # one decoded image at a time, whatever is asked for
                found = self._rate(captions, references, image)
            replies.append(
                {
                    "scores": [[None] * len(MODES) if values is None else values for values, _ in found],
                    "errors": [reason for _, reason in found],
                    "truncated": [False] * len(captions),
                }
            )
        return {"metric": METRIC, "identity": self.model.identity, "aspects": list(MODES), "samples": replies}

    def _checked(self, sample: Any) -> tuple[list[str], list[str], Any]:
        """Captions, references and image of a sample; the image is not read yet."""
        if not isinstance(sample, dict):
            raise Refusal(422, "a sample must be an object with candidates, image and references")
        captions, references = sample.get("candidates"), sample.get("references") or []
        for name, texts in (("candidates", captions), ("references", references)):
            if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
                raise Refusal(422, f"{name} must be a list of texts that are not blank")
            if any(len(text) > LIMITS["max_characters"] for text in texts):
                raise Refusal(413, f"a text of {name} has over {LIMITS['max_characters']} characters")
        if not captions:
            raise Refusal(422, "a sample needs candidates")
        given = sample.get("image")
        image = {"url" if given.startswith("data:") else "path": given} if isinstance(given, str) else given
        if image is not None:
            kinds = list(image) if isinstance(image, dict) else []
            if kinds not in (["base64"], ["path"], ["url"]) or not isinstance(image[kinds[0]], str):
                raise Refusal(422, 'an image must be {"base64": ...}, {"path": ...} or a data URL')
        return captions, references, image

    def _rate(
        self, captions: list[str], references: list[str], given: Any
    ) -> list[tuple[list[float] | None, str | None]]:
        try:
            if not references or given is None:
                raise ValueError("the authors' VELA needs an image and references, and the sample lacks one of them")
            image = self._image(*next(iter(given.items())))
        except ValueError as error:
            return [(None, str(error))] * len(captions)
        scored: list[tuple[list[float] | None, str | None]] = self.model.score(
            [(image, references, caption) for caption in captions]
        )
        return scored

    def _image(self, kind: str, text: str) -> Image.Image:
        from PIL import Image

        if kind == "url" and not text.startswith("data:"):
            raise ValueError("nothing is fetched from addresses: send the image as base64")
        try:
            if kind == "path":
                data = self._file(text).read_bytes()
            else:
                data = base64.b64decode(text.partition(",")[2] if kind == "url" else text, validate=True)
            with Image.open(BytesIO(data), formats=_FORMATS) as opened:
                if opened.width * opened.height > LIMITS["max_pixels"]:
                    raise ValueError(f"{opened.width} x {opened.height} pixels are over {LIMITS['max_pixels']}")
                return opened.convert("RGB")
        except (OSError, ValueError, binascii.Error, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"the image cannot be read: {error}"[:300]) from None

    def _file(self, name: str) -> Path:
        if self.root is None:
            raise ValueError("this service takes no paths: it was started without --image-root")
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root) or not path.is_file():
            raise ValueError("there is no such file under the image root")
        if path.stat().st_size > LIMITS["max_body"]:
            raise ValueError(f"the file has over {LIMITS['max_body']} bytes")
        return path


def run(
    repository: str | Path,
    *,
    device: str | None = None,
    batch_size: int = 8,
    host: str = "127.0.0.1",
    port: int = 8123,
    image_root: str | Path | None = None,
) -> None:
    """Loads the authors' model and serves it until SIGTERM or Ctrl-C; requests under way are answered first.

    The token is read from the environment variable CAPREWARD_TOKEN.
    """
    import torch

    root = None if image_root is None else Path(image_root).resolve()  # before the folder changes
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    token = os.environ.get("CAPREWARD_TOKEN") or None
    server = make_server(None, host=host, port=port, image_root=root, token=token)  # says first if it cannot
    server.RequestHandlerClass.model = OfficialVela(repository, chosen, batch_size)  # type: ignore[attr-defined]

    def stop(number: int, frame: Any) -> None:
        threading.Thread(target=server.shutdown).start()  # which waits for the loop that a signal interrupts

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    print(f"serving the authors' VELA on http://{host}:{server.server_address[1]} ({chosen})", flush=True)
    server.serve_forever()
    server.server_close()
