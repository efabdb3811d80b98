"""The published VELA behind HTTP: a stand-in for its authors' code, in a process that can import nothing newer."""

from __future__ import annotations

import ast
import base64
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reward.service import vela_official
from tests.pictures import png

FILE = Path(vela_official.__file__)

# The interface as a public wrapper calls it. The score tells what arrived: mode, words, references, brightness.
STAND_IN = {
    "vela/__init__.py": """
import torch

class Model(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg, self.mode_embedding = cfg, torch.nn.Embedding(3, 8)
        torch.nn.init.ones_(self.mode_embedding.weight)

    def move_batch_to_device(self, batch, device):
        return {name: value.to(device) for name, value in batch.items()}

    def forward(self, mode, words, references, brightness):
        assert not torch.is_grad_enabled() and not self.training
        if (words == 13).any():
            raise RuntimeError("thirteen words")
        return mode * 0.1 + words * 0.01 + references * 0.001 + brightness - 0.5 * (words == 2)

def load_pretrained_model(cfg_path, device):
    return Model({"text": open(cfg_path).read()}).to(device)
""",
    "dataloader/__init__.py": "",
    "dataloader/vela_collate_fn.py": """
import torch

class VELACollateFn:
    def __init__(self, cfg, device):
        assert cfg["text"] == "lora: 4"

    def __call__(self, rows):
        assert all(set(row) == {"imgid", "img", "refs", "cand", "mode", "score"} for row in rows)
        assert all(row["img"].mode == "RGB" for row in rows)
        columns = {
            "mode": [["desc", "rel", "flu"].index(row["mode"]) for row in rows],
            "words": [len(row["cand"].split()) for row in rows],
            "references": [len(row["refs"]) for row in rows],
            "brightness": [row["img"].getpixel((0, 0))[0] / 255 for row in rows],
        }
        return {name: torch.tensor(values, dtype=torch.float32) for name, values in columns.items()}, None
""",
    "configs/config_regressor.yaml": "lora: 4",
}
START = """
import runpy, sys

class Older:  # what that environment does not have
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("reward", "transformers", "typer", "fastapi", "pydantic", "datasets", "httpx"):
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Older())
file, clone, photos = sys.argv[1:]
runpy.run_path(file)["run"](clone, device="cpu", batch_size=4, port=0, image_root=photos)
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    Image.new("RGBA", (4, 4), (51, 51, 51, 255)).save(folder / "grey.png")
    (folder / "note.txt").write_text("no image")
    (folder.parent / "secret.png").write_bytes((folder / "grey.png").read_bytes())
    return folder


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The port of a running server, and its process."""
    clone = tmp_path_factory.mktemp("clone")
    for name, text in STAND_IN.items():
        (clone / name).parent.mkdir(exist_ok=True)
        (clone / name).write_text(text)
    command = [sys.executable, "-c", START, str(FILE), str(clone), str(photos)]
    environment = {**os.environ, "CAPREWARD_TOKEN": "a-secret-token"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    line = server.stdout.readline()
    if "http://127.0.0.1:" not in line:
        server.kill()
        raise AssertionError(f"{line}{server.communicate()[1]}")
    yield int(line.partition("127.0.0.1:")[2].split()[0]), server
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0


def ask(port: int, body: Any = None, *, path: str = "/score", token: str | None = "a-secret-token") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request("GET" if data is None else "POST", path, data, headers)
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


def sample(*candidates: str, image: Any = "grey.png", references: int = 2) -> dict[str, Any]:
    return {"candidates": list(candidates), "image": image, "references": ["A reference."] * references}


def encoded(image: Image.Image) -> str:
    return base64.b64encode(png(image)).decode()


def expected(words: int) -> list[float]:
    values = [0.2 + 0.1 * mode + 0.01 * words + 0.002 - 0.5 * (words == 2) for mode in range(3)]
    return [pytest.approx(min(max(value, 0), 1), abs=1e-6) for value in values]


def test_the_file_needs_nothing_newer_than_that_environment_has() -> None:
    tree = ast.parse(FILE.read_text(encoding="utf-8"), feature_version=(3, 10))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    others = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert others == {"PIL", "dataloader", "torch", "vela"}


def test_scores_in_the_form_of_the_service(address: tuple[int, Any]) -> None:
    image = {"base64": encoded(Image.new("L", (4, 4), 51))}
    url = f"data:image/png;base64,{image['base64']}"
    samples = [sample("a star", "one two three"), sample("a b c d", image=image), sample("a b c", image=url)]
    status, reply = ask(address[0], {"metric": "vela", "samples": samples})
    assert status == 200
    assert reply["aspects"] == ["descriptiveness", "relevance", "fluency"]
    rows = [row for each in reply["samples"] for row in each["scores"]]
    assert rows == [expected(2), expected(3), expected(4), expected(3)]  # the first is clamped at 0
    assert reply["samples"][0]["truncated"] == [False, False]
    assert all(error is None for each in reply["samples"] for error in each["errors"])


def test_facts_are_those_that_a_remote_scorer_reads(address: tuple[int, Any]) -> None:
    assert ask(address[0], path="/health", token=None) == (200, {"status": "ok"})
    status, reply = ask(address[0], path="/info")
    facts = reply["metrics"]["vela"]
    assert status == 200
    assert reply["limits"]["max_candidates"] == 1024
    assert facts["identity"].startswith("vela-official ")
    assert facts["needs_references"]
    assert facts["aliases"] == {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}
    assert ask(address[0], {"samples": [sample("a")]})[1]["identity"] == facts["identity"]


def test_one_caption_does_not_spoil_the_others(address: tuple[int, Any]) -> None:
    samples = [
        sample("a b c", "w " * 13, "a b c d"),
        sample("a b c", references=0),
        sample("a b c", image="gone.png"),
        sample("a b c", image={"path": "note.txt"}),
        sample("a b c", image="../secret.png"),
        sample("a b c", image="/etc/passwd"),
        sample("a b c", image="http://127.0.0.1/a.png"),
        sample("a b c", image={"url": "http://127.0.0.1/a.png"}),
        sample("a b c", image={"base64": "????"}),
        sample("a b c", image={"base64": encoded(Image.new("1", (6000, 6000)))}),
    ]
    status, reply = ask(address[0], {"samples": samples})
    assert status == 200
    first, *rest = reply["samples"]
    assert first["scores"] == [expected(3), [None] * 3, expected(4)]
    assert first["errors"][1] == "RuntimeError: thirteen words"
    parts = [
        "references",
        "no such",
        "cannot be read",
        *["no such"] * 3,
        "nothing is fetched",
        "cannot be read",
        "pixels",
    ]
    assert all(part in each["errors"][0] for part, each in zip(parts, rest, strict=True))
    assert [each["scores"] for each in rest] == [[[None] * 3]] * 9


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 422),
        (b"[" * 100_000, 422),
        ([], 422),
        ({"samples": {}}, 422),
        ({"samples": [3]}, 422),
        ({"samples": [sample()]}, 422),
        ({"samples": [sample(" ")]}, 422),
        ({"samples": [sample("a", image=3)]}, 422),
        ({"samples": [sample("a", image={"base64": "", "path": ""})]}, 422),
        ({"samples": [sample("a" * 30_000)]}, 413),
        ({"samples": [sample(*["a"] * 2000)]}, 413),
        ({"samples": [], "metric": "beitscore"}, 404),
        ({"samples": []}, 200),
    ],
)
def test_requests_that_cannot_be_are_refused(address: tuple[int, Any], body: Any, status: int) -> None:
    assert ask(address[0], body)[0] == status


def test_wrong_tokens_paths_and_sizes(address: tuple[int, Any]) -> None:
    port = address[0]
    for token in (None, "", "other", "a-secret-tokem", "\xff"):
        assert ask(port, {"samples": []}, token=token)[0] == 401
    assert ask(port, path="/metrics")[0] == 404
    assert ask(port, {}, path="/get_reward")[0] == 404
    for header, status in (("Content-Length: 99999999999", b"413"), ("Content-Length: -1", b"411"), ("X: y", b"411")):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            request = f"POST /score HTTP/1.1\r\nAuthorization: Bearer a-secret-token\r\n{header}\r\n\r\n"
            client.sendall(request.encode())
            assert status in client.recv(100)


def test_many_clients_at_a_time(address: tuple[int, Any]) -> None:
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda count: ask(address[0], {"samples": [sample("a " * count)]}), range(3, 12)))
    assert [reply["samples"][0]["scores"][0] for _, reply in replies] == [expected(count) for count in range(3, 12)]


def test_too_many_and_slow_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vela_official.LIMITS, "max_waiting", 1)
    monkeypatch.setitem(vela_official.LIMITS, "timeout", 0.5)

    class Slow:
        identity = "slow"

        def __init__(self) -> None:
            self.inside, self.go_on = threading.Event(), threading.Event()

        def score(self, captions: list[Any]) -> list[Any]:
            self.inside.set()
            assert self.go_on.wait(60)
            return [([0.5] * 3, None)] * len(captions)

    server = vela_official.make_server(model := Slow(), port=0)
    port = server.server_address[1]
    threading.Thread(target=server.serve_forever).start()
    with ThreadPoolExecutor(1) as pool:
        body = {"samples": [sample("a", image={"base64": encoded(Image.new("L", (2, 2)))})]}
        first = pool.submit(ask, port, body)
        assert model.inside.wait(60)
        assert ask(port, {"samples": []})[0] == 503
        model.go_on.set()
        assert first.result()[0] == 200
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"POST /score HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
        assert client.recv(100) == b""  # closed
    server.shutdown()
    server.server_close()


def test_a_server_open_to_others_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="set a token"):
        vela_official.make_server(None, host="0.0.0.0", port=0)
    with pytest.raises(SystemExit, match="has no configs"):
        vela_official.OfficialVela(tmp_path)
