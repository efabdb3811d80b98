"""A server of OpenAI's chat protocol that edits the caption at the end of a request; it keeps what it was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

__all__ = ["rewriting_server"]


@contextmanager
def rewriting_server(edit: Callable[[str], str]) -> Iterator[tuple[str, list[Any]]]:
    """Gives the address, and a list of the messages of each request so far."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(request["messages"])
            content = request["messages"][-1]["content"]
            text = content if isinstance(content, str) else content[-1]["text"]
            answer = json.dumps(edit(json.loads(text.strip().splitlines()[-1])))
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": answer}}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            facts = {"id": "1", "object": "chat.completion", "created": 0, "model": request["model"]}
            body = json.dumps({**facts, "choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Nothing on stderr, which is the command's."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
