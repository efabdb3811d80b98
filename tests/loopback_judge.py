"""An OpenAI-compatible server on the loopback interface, around a tiny model, with faults on demand."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import torch
from PIL import Image

__all__ = ["Fault", "LoopbackJudge", "loopback_judge"]


@dataclass(frozen=True)
class Fault:
    """What happens to one request instead of an answer, or to its answer.

    `kind`: "status" (with `status`), "hang" (`seconds` without a word), "truncate" (half of the JSON, well-formed as
    HTTP), "cut" (half of the bytes announced), "drop" (the connection is reset before any answer).
    """

    kind: str
    status: int = 500
    seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    body: str = '{"error": {"message": "planned", "code": null}}'


class LoopbackJudge:
    """A model behind chat completions, and a record of what was asked.

    Answers are made by transformers' own `generate` and its raw logits, so that they share no code with the library.

    Args:
        model, processor: a vision-language model with a chat template.
        key: when given, requests without this bearer token are refused with 401.

    Attributes:
        faults: consumed from the left, one a request; None means no fault.
        served: {hash of the request: times it was answered in full}.
    """

    def __init__(self, model: Any, processor: Any, *, key: str | None = None) -> None:
        self.model, self.processor, self.key = model, processor, key
        self.endpoint = ""
        self.faults: deque[Fault | None] = deque()
        self.served: Counter[str] = Counter()
        self.requests: list[dict[str, Any]] = []
        self.arrivals: list[float] = []
        self.delay = 0.0
        self.refuse = ""  # questions with this text are refused with 400
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        self._model_lock = threading.Lock()

    @contextmanager
    def handling(self, body: dict[str, Any]) -> Iterator[Fault | None]:
        """Books a request; gives its fault."""
        with self._lock:
            self.requests.append(body)
            self.arrivals.append(time.monotonic())
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            fault = self.faults.popleft() if self.faults else None
        try:
            yield fault
        finally:
            with self._lock:
                self._now -= 1

    def served_in_full(self, body: dict[str, Any]) -> None:
        with self._lock:
            self.served[hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()] += 1

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The chat completion for a request."""
        messages = []
        for message in body["messages"]:
            parts = message["content"]
            if isinstance(parts, str):
                parts = [{"type": "text", "text": parts}]
            content = []
            for part in parts:
                if part["type"] == "image_url":
                    encoded = part["image_url"]["url"].split(",", 1)[1]
                    content.append({"type": "image", "image": Image.open(BytesIO(base64.b64decode(encoded)))})
                else:
                    content.append(part)
            messages.append({"role": message["role"], "content": content})
        inputs = self.processor.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        with self._model_lock, torch.inference_mode():
            out = self.model.generate(
                **inputs,
                max_new_tokens=body["max_tokens"],
                do_sample=False,
                return_dict_in_generate=True,
                output_logits=True,
            )
        length = inputs["input_ids"].shape[1]
        ids = out.sequences[0, length:].tolist()
        tokenizer = self.processor.tokenizer
        ended = ids[-1] == tokenizer.eos_token_id
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": "stop" if ended else "length",
            "message": {"role": "assistant", "content": tokenizer.decode(ids, skip_special_tokens=True)},
            "logprobs": None,
        }
        if body.get("logprobs"):
            rows = [step[0].double().log_softmax(-1) for step in out.logits]
            content = []
            for token, row in zip(ids, rows, strict=True):
                values, best = row.topk(body["top_logprobs"])
                listed = zip(best.tolist(), values.tolist(), strict=True)
                content.append(
                    {
                        "token": tokenizer.decode([token]),
                        "logprob": float(row[token]),
                        "top_logprobs": [{"token": tokenizer.decode([t]), "logprob": v} for t, v in listed],
                    }
                )
            choice["logprobs"] = {"content": content}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [choice],
            "usage": {"prompt_tokens": length, "completion_tokens": len(ids), "total_tokens": length + len(ids)},
        }


@contextmanager
def loopback_judge(model: Any, processor: Any, *, key: str | None = None) -> Iterator[LoopbackJudge]:
    """Serves a model at `judge.endpoint` until the block ends."""
    judge = LoopbackJudge(model, processor, key=key)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with judge.handling(body) as fault:
                try:
                    self._handle(body, fault)
                except (BrokenPipeError, ConnectionResetError):  # the client went away, as it may
                    self.close_connection = True

        def _handle(self, body: dict[str, Any], fault: Fault | None) -> None:
            sent = self.headers.get("Authorization")
            if judge.key is not None and sent != f"Bearer {judge.key}":
                # some servers repeat what they were sent
                return self._send(401, {"error": {"message": f"wrong key: {sent}", "code": "invalid_api_key"}})
            if not self.path.endswith("/v1/chat/completions") or body["model"] != "tiny":
                return self._send(404, {"error": {"message": f"no such model: {body['model']}", "code": None}})
            if judge.refuse and judge.refuse in json.dumps(body["messages"]):
                return self._send(400, {"error": {"message": f"refused; you sent {sent}", "code": None}})
            if fault is not None and fault.kind == "status":
                return self._send_bytes(fault.status, fault.body.encode(), fault.headers)
            if fault is not None and fault.kind == "drop":
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return None
            if fault is not None and fault.kind == "hang":
                time.sleep(fault.seconds)
                self.close_connection = True
                return None
            time.sleep(judge.delay)
            data = json.dumps(judge.complete(body)).encode()
            if fault is not None and fault.kind == "truncate":
                return self._send_bytes(200, data[: len(data) // 2])
            if fault is not None and fault.kind == "cut":
                self._send_bytes(200, data[: len(data) // 2], announced=len(data))
                self.close_connection = True
                return None
            judge.served_in_full(body)
            return self._send_bytes(200, data)

        def _send(self, status: int, body: dict[str, Any]) -> None:
            self._send_bytes(status, json.dumps(body).encode())

        def _send_bytes(
            self, status: int, data: bytes, headers: dict[str, str] | None = None, announced: int | None = None
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data) if announced is None else announced))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    judge.endpoint = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield judge
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
