"""A server of OpenAI's chat protocol that edits the caption at the end of a request; it keeps what it was asked.

Before the first question, a judge finds out whether system messages arrive: these two requests are answered and not
kept.
"""

import json
from contextlib import contextmanager

from tests.toys.loopback_http import send, serving

__all__ = ["rewriting_server"]


@contextmanager
def rewriting_server(edit):
    """Gives the address, and a list of the messages of each request so far."""
    asked = []

    def reply(handler, body):
        request = json.loads(body)
        content = request["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[-1]["text"]
        if request["max_tokens"] == 1:
            answer = "Hello."
        else:
            asked.append(request["messages"])
            answer = json.dumps(edit(json.loads(text.strip().splitlines()[-1])))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": answer}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        facts = {"id": "1", "object": "chat.completion", "created": 0, "model": request["model"]}
        send(handler, json.dumps({**facts, "choices": [choice], "usage": usage}).encode())

    with serving(reply) as address:
        yield f"{address}/v1", asked
