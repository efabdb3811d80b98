"""A reward service with faults on demand."""

import base64
import json
import time
from collections import deque
from contextlib import contextmanager
from io import BytesIO

from PIL import Image

from tests.toys.loopback_http import send, serving

FACTS = {
    "metric": "made-up",
    "identity": "first",
    "aspects": ["words", "width"],
    "aliases": {"w": "words"},
    "needs_image": False,
    "needs_references": False,
    "reads_images": True,
    "reads_references": True,
    "range": [0.0, None],
    "default_weights": None,
    "paper": "",
}
LIMITS = {"max_candidates": 3, "max_body": 100_000}


class FakeService:
    """Scores captions by their words and the width of their image; `faults` come before answers, one a request.

    A fault is a status with a body, or "drop", "hang" or "garble".
    """

    def __init__(self):
        self.faults = deque()
        self.facts = dict(FACTS)
        self.requests = []
        self.tokens = []
        self.url = ""
        self.is_down = False
        self.is_sick = 0  # so many checks of its health fail

    def answer(self, request):
        self.requests.append(request)
        samples = []
        for sample in request["samples"]:
            width = 0
            if "base64" in sample.get("image", {}):
                width = Image.open(BytesIO(base64.b64decode(sample["image"]["base64"]))).width
            captions = sample["candidates"]
            bad = ["bad" in caption for caption in captions]
            scores = [[None, None] if b else [len(c.split()), width] for c, b in zip(captions, bad, strict=True)]
            errors = ["a bad caption" if b else None for b in bad]
            samples.append({"scores": scores, "errors": errors, "truncated": ["long" in c for c in captions]})
        return {"identity": self.facts["identity"], "samples": samples}

    def reply(self, handler, body):
        if handler.path == "/health":
            self.is_sick -= (is_sick := self.is_sick > 0)
            handler.close_connection = is_sick
            return None if is_sick else send(handler, b"{}")
        if handler.command == "GET":
            info = {"metrics": {self.facts["metric"]: self.facts}, "limits": LIMITS}
            return send(handler, json.dumps(info).encode())
        self.tokens.append(handler.headers["Authorization"])
        fault = (500, "down") if self.is_down else self.faults.popleft() if self.faults else None
        if fault in ("drop", "hang"):
            time.sleep(1.0 if fault == "hang" else 0)
            handler.close_connection = True
        elif isinstance(fault, tuple):
            send(handler, fault[1].encode(), fault[0])
        else:
            send(
                handler,
                b'{"identity": "fi' if fault == "garble" else json.dumps(self.answer(json.loads(body))).encode(),
            )


@contextmanager
def fake_service():
    fake = FakeService()
    with serving(fake.reply) as fake.url:
        yield fake
