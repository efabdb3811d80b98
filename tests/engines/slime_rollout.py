"""slime's data source and rollout, with a JSON file of settings: what its samples hold is printed as JSON.

slime asks a router of SGLang servers for tokens over HTTP. Here a server answers as SGLang does, with a captioner that
transformers runs.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import threading
from argparse import Namespace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from slime.rollout.data_source import RolloutDataSource
from slime.rollout.sglang_rollout import generate_rollout
from slime.utils.http_utils import init_http_client
from transformers import AutoModelForImageTextToText, AutoProcessor


class Router:
    """A router with a server behind it, on a loopback port."""

    def __init__(self, folder: str) -> None:
        self.model = AutoModelForImageTextToText.from_pretrained(folder)
        self.processor = AutoProcessor.from_pretrained(folder)
        self.turn = threading.Lock()
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # slime asks which servers there are, to stop what they still write
                self._send({"workers": []})

            def do_POST(self) -> None:
                self._send(answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

            def _send(self, reply: dict[str, Any]) -> None:
                body = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @torch.inference_mode()
    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """SGLang's reply to /generate."""
        image = Image.open(io.BytesIO(base64.b64decode(asked["image_data"][0].partition(",")[2])))
        inputs = self.processor(text=[asked["text"]], images=[image], return_tensors="pt")
        with self.turn:
            out = self.model.generate(
                **inputs, max_new_tokens=asked["sampling_params"]["max_new_tokens"], do_sample=True
            )
        ids = out[0, inputs["input_ids"].shape[1] :].tolist()
        facts = {"finish_reason": {"type": "stop"}, "output_token_logprobs": [[0.0, token, None] for token in ids]}
        return {"text": self.processor.tokenizer.decode(ids, skip_special_tokens=True), "meta_info": facts}


class Settings(Namespace):
    """What slime's parser makes of a command; options that are not set are None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def main() -> None:
    options = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    router = Router(options["hf_checkpoint"])
    args = Settings(**options, sglang_router_ip="127.0.0.1", sglang_router_port=router.server.server_address[1])
    init_http_client(args)
    groups = generate_rollout(args, 0, RolloutDataSource(args)).samples
    router.server.shutdown()
    samples = [sample for group in groups for sample in group]
    for each in samples:  # what the policy was shown
        each.multimodal_inputs["images"][0].save(f"{each.group_index}.png")
    found = [{"row": each.group_index, "text": each.response, "reward": each.reward} for each in samples]
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
