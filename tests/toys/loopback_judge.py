"""An OpenAI-compatible server on the loopback interface, around a tiny model, with faults on demand."""

import base64
import json
import socket
import threading
import time
from collections import Counter, deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO

import torch
from PIL import Image

from tests.toys.loopback_http import send, serving


@dataclass(frozen=True)
class Fault:
    """What happens to one request instead of an answer, or to its answer.

    `kind`: "status" (with `status`), "truncate" (half of the JSON, well-formed as HTTP), "cut" (half of the
    bytes announced), "drop" (the connection is reset before any answer).
    """

    kind: str
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: str = '{"error": {"message": "planned", "code": null}}'


def _parts(content):
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def with_image(part):
    if part["type"] != "image_url":
        return part
    encoded = part["image_url"]["url"].split(",", 1)[1]
    return {"type": "image", "image": Image.open(BytesIO(base64.b64decode(encoded)))}


class LoopbackJudge:
    """A model behind chat completions, and a record of what was asked.

    Answers are made by transformers' own `generate` and its raw logits, so that they share no code with the library.

    Args:
        model, processor: a vision-language model with a chat template.
        key: when given, requests without this bearer token are refused with 401.

    Attributes:
        models: names that it lists and answers to.
        path: of what it answers.
        faults: consumed from the left, one a request; None means no fault.
        served: {request: times it was answered in full}.
    """

    def __init__(self, model, processor, *, key=None):
        self.model, self.processor, self.key = model, processor, key
        self.endpoint = ""
        self.models = ("tiny",)
        self.path = "/v1/chat/completions"
        self.loading = 0  # times that it says that it is not ready, when asked for its models
        self.faults = deque()
        self.served = Counter()
        self.requests = []
        self.arrivals = []
        self.delay = 0.0
        self.refuse = ""  # questions with this text are refused with 400
        self.newer = False  # refuses max_tokens, as OpenAI's newer models do
        self.most_choices = 1_000  # of a reply, whatever `n` asks for
        self.samples = True  # False writes the likeliest text at any temperature
        self.choices = Counter()  # {last message: answers that were sent in full}
        self.bills_cached = True  # False leaves out of the bill what earlier requests began with
        self.seen_prompts = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        self._model_lock = threading.Lock()

    @contextmanager
    def handling(self, body):
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

    def complete(self, body):
        """The chat completion for a request."""
        messages = [
            {"role": message["role"], "content": [with_image(part) for part in _parts(message["content"])]}
            for message in body["messages"]
        ]
        inputs = self.processor.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        sampled = self.samples and body.get("temperature", 1) > 0
        count = min(body.get("n", 1), self.most_choices)
        with self._model_lock, torch.inference_mode():
            out = self.model.generate(
                **inputs,
                max_new_tokens=body.get("max_tokens") or body["max_completion_tokens"],
                do_sample=sampled,
                num_return_sequences=count,
                return_dict_in_generate=True,
                output_logits=True,
            )
        length = inputs["input_ids"].shape[1]
        rows = [self._up_to_the_end(row) for row in out.sequences[:, length:].tolist()]
        written = sum(map(len, rows))
        read = self._billed(inputs["input_ids"][0].tolist())
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [self._choice(row, ids, out.logits, body) for row, ids in enumerate(rows)],
            "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
        }

    def _billed(self, prompt):
        """Tokens of a prompt that are to be paid."""
        cached = 0
        for seen in [] if self.bills_cached else self.seen_prompts:
            while prompt[: cached + 1] == seen[: cached + 1] and cached < len(prompt):
                cached += 1
        self.seen_prompts.append(prompt)
        return len(prompt) - cached

    def _up_to_the_end(self, ids):
        end = self.processor.tokenizer.eos_token_id
        return ids[: ids.index(end) + 1] if end in ids else ids

    def _choice(self, row, ids, logits, body):
        tokenizer = self.processor.tokenizer
        choice = {
            "index": row,
            "finish_reason": "stop" if ids[-1] == tokenizer.eos_token_id else "length",
            "message": {"role": "assistant", "content": tokenizer.decode(ids, skip_special_tokens=True)},
            "logprobs": None,
        }
        if body.get("logprobs"):
            told = [step[row].double().log_softmax(-1) for step in logits[: len(ids)]]
            top = body.get("top_logprobs", 0)
            choice["logprobs"] = {"content": [self._step(*each, top) for each in zip(ids, told, strict=True)]}
        return choice

    def _step(self, token, row, count):
        """What is told of a written token, given the log probabilities of all tokens."""
        decode = self.processor.tokenizer.decode
        listed = [{"token": decode([other]), "logprob": float(row[other])} for other in row.topk(count).indices]
        return {"token": decode([token]), "logprob": float(row[token]), "top_logprobs": listed}

    def reply(self, handler, sent_body):
        """Answers a request, or does what its fault says."""
        if handler.command == "GET":
            if self.loading:
                self.loading -= 1
                send(handler, b'{"error": {"message": "Loading model", "code": 503}}', 503)
                return
            names = self.models if handler.path.endswith("/v1/models") else ()
            send(handler, json.dumps({"object": "list", "data": [{"id": name} for name in names]}).encode())
            return
        try:
            body = json.loads(sent_body)
        except ValueError:  # the client was killed in the middle
            handler.close_connection = True
            return
        with self.handling(body) as fault:
            sent, kind = handler.headers.get("Authorization"), fault and fault.kind
            if refusal := self._refusal(handler.path, sent, body):
                status, message, code = refusal
                send(handler, json.dumps({"error": {"message": message, "code": code}}).encode(), status)
            elif fault and kind == "status":
                send(handler, fault.body.encode(), fault.status, **fault.headers)
            elif kind == "drop":
                handler.connection.shutdown(socket.SHUT_RDWR)
            else:
                time.sleep(self.delay)
                data = json.dumps(self.complete(body)).encode()
                if not fault:
                    with self._lock:
                        self.served[json.dumps(body, sort_keys=True)] += 1
                        if "choices" in json.loads(data):
                            self.choices[json.dumps(body["messages"][-1])] += len(json.loads(data)["choices"])
                part = data[: len(data) // 2] if fault else data
                send(handler, part, announced=len(data) if kind == "cut" else None)
            handler.close_connection |= kind in ("drop", "cut")

    def _refusal(self, path, sent, body):
        """Status, message and code; some servers repeat the key that they were sent."""
        if self.key is not None and sent != f"Bearer {self.key}":
            return 401, f"wrong key: {sent}", "invalid_api_key"
        if not path.endswith(self.path) or body["model"] not in self.models:
            return 404, f"no such model: {body['model']}", None
        if self.newer and "max_tokens" in body:
            return 400, "Unsupported parameter: use 'max_completion_tokens', not 'max_tokens'", "unsupported_parameter"
        if self.refuse and self.refuse in json.dumps(body.get("messages", body)):
            return 400, f"refused; you sent {sent}", None
        return None


@contextmanager
def loopback_judge(model, processor, *, key=None, kind=LoopbackJudge):
    """Serves a model at `judge.endpoint` until the block ends."""
    judge = kind(model, processor, key=key)
    with serving(judge.reply) as address:
        judge.endpoint = f"{address}/v1"
        yield judge
