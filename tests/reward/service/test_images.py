"""Images of requests: where they may come from, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from reward.service.fetching import fetch
from reward.service.images import ImageReader
from reward.service.settings import ServiceSettings, parse_metrics
from tests.loopback_http import serving
from tests.reward.service.in_process import App, picture_file


def app_with(root: Path | None = None, **settings: object) -> App:
    return App("vela", image_root=root, **settings)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    picture_file(folder / "root" / "inner")
    picture_file(folder, "secret.png")
    (folder / "root" / "inside.png").symlink_to(folder / "root" / "inner" / "a.png")
    (folder / "root" / "outside.png").symlink_to(folder / "secret.png")
    (folder / "root" / "up").symlink_to(folder)
    (folder / "root2").symlink_to(folder / "root")
    (folder / "rootless.png").write_bytes((folder / "secret.png").read_bytes())
    (folder / "root" / "text.png").write_text("no image")
    os.mkfifo(folder / "root" / "pipe.png")
    return folder / "root"


@pytest.fixture(scope="module")
def app(root: Path) -> App:
    return app_with(root)


def test_one_image_in_all_its_forms_has_one_score(app: App, root: Path) -> None:
    data = base64.b64encode((root / "inner" / "a.png").read_bytes()).decode()
    forms = [
        {"base64": data},
        {"url": f"data:image/png;base64,{data}"},
        f"data:image/png;base64,{data}",
        "data:image/png," + "".join(f"%{byte:02x}" for byte in base64.b64decode(data)),
        {"path": "inner/a.png"},
        "inner/a.png",
        "inside.png",
        str(root / "inner" / "a.png"),
    ]
    scores = [app.score_image(form)["samples"][0]["scores"][0] for form in forms]
    assert all(score == scores[0] and None not in score for score in scores)


@pytest.mark.parametrize(
    "path",
    [
        "../secret.png",
        "outside.png",
        "up/secret.png",
        "inner/../../secret.png",
        "../rootless.png",
        "/etc/passwd",
        "..",
        "",
    ],
)
def test_paths_out_of_the_root_are_refused(app: App, path: str) -> None:
    assert "leads out of the image root" in app.score_image(path, 422)["error"]
    assert "leads out of the image root" in app.score_image({"path": path}, 422)["error"]


def test_a_root_may_be_a_link_and_paths_need_one(root: Path) -> None:
    assert app_with(root.parent / "root2").score_image("inner/a.png")["samples"][0]["errors"] == [None]
    assert "--image-root" in app_with().score_image("a.png", 422)["error"]
    assert "is no file" in app_with(root).score_image("pipe.png", 422)["error"]  # and is not waited for


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("no.png", "No such file"),
        ("text.png", "not an image"),
        ("a\0.png", "not a path"),
        ({"base64": "%%"}, "not base64"),
        ({"base64": ""}, "not an image"),
        ("data:image/png;base64", "no comma"),
    ],
)
def test_an_image_that_cannot_be_read_is_said_of_its_sample(app: App, image: object, reason: str) -> None:
    reply = app.score_image(image)["samples"][0]
    assert reply["scores"] == [[None] * 3]
    assert reason in reply["errors"][0]


def test_a_pixel_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    file = picture_file(tmp_path, size=(3000, 3000))  # 27 MB of pixels in a small file
    assert file.stat().st_size < 100_000
    app = app_with(tmp_path, max_pixels=8_999_999)
    data = base64.b64encode(file.read_bytes()).decode()
    assert "too many pixels" in app.score_image({"base64": data}, 422)["error"]
    assert "too many pixels" in app.score_image("a.png", 422)["error"]
    assert not app.jobs


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/a.png",
        "https://user:word@allowed.example/a.png",
        "http://allowed.example:8080/a.png",
        "ftp://allowed.example/a.png",
        "file:///etc/passwd",
        "http://[::1/a.png",
        "http://",
    ],
)
def test_addresses_that_are_not_allowed_are_refused(url: str) -> None:
    app = app_with(allowed_hosts=frozenset({"allowed.example"}))
    app.score_image({"url": url}, 422)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]"])
def test_this_machine_is_refused_even_if_it_is_allowed(host: str) -> None:
    app = app_with(allowed_hosts=frozenset({host.strip("[]")}))
    assert "no public address" in app.score_image({"url": f"http://{host}/a.png"}, 422)["error"]


# Fetching: names stand for made-up public addresses, and connections to those lead to a server in this process.

PUBLIC = {"good.example": ["93.184.215.14"], "inner.example": ["10.0.0.7"], "both.example": ["93.184.215.14", "::1"]}


def web(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.close_connection = True  # without a Content-Length, the body ends here
    if handler.path.startswith("/to/"):
        handler.send_response(302)
        handler.send_header("Location", handler.path.removeprefix("/to/"))
        handler.end_headers()
        return
    handler.send_response(404 if handler.path == "/none" else 200)
    handler.end_headers()
    handler.wfile.write(b"x" * (int(handler.path[1:]) if handler.path[1:].isdigit() else 5))


def fetched(url: str, most_bytes: int = 100) -> tuple[bytes, list[str]]:
    """What is fetched, and the addresses that were connected to."""
    reached: list[str] = []
    with serving(web) as own_address:

        def connect(address: str, port: int, seconds: float) -> socket.socket:
            reached.append(address)
            return socket.create_connection(("127.0.0.1", int(own_address.rpartition(":")[2])), seconds)

        hosts = {*PUBLIC, "127.0.0.1"}
        resolve = lambda host, port: PUBLIC.get(host, [host])  # noqa: E731
        return fetch(url, hosts, most_bytes=most_bytes, resolve=resolve, connect=connect), reached


def test_fetching_connects_to_the_address_that_was_checked() -> None:
    assert fetched("http://good.example/a.png") == (b"xxxxx", ["93.184.215.14"])
    assert fetched("http://good.example/to/http://good.example/7?q=1")[0] == b"xxxxx"


@pytest.mark.parametrize(
    "target",
    [
        "http://inner.example/",
        "http://both.example/",
        "http://127.0.0.1/",
        "http://other.example/",
        "file:///etc/passwd",
    ],
)
def test_redirects_to_what_is_not_allowed_are_refused(target: str) -> None:
    with pytest.raises(PermissionError):
        fetched(f"http://good.example/to/{target}")
    with pytest.raises(PermissionError):
        fetched(target)


def test_what_is_no_image_to_fetch() -> None:
    with pytest.raises(OSError, match="status 404"):
        fetched("http://good.example/none")
    with pytest.raises(OSError, match="more than 100 bytes"):
        fetched("http://good.example/101")
    with pytest.raises(OSError, match="redirects"):
        fetched("http://good.example" + "/to/http://good.example" * 5)


def test_images_that_come_slowly_hold_up_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replies of the workers come through the threads of the event loop, which are few."""
    go_on = threading.Event()
    monkeypatch.setattr(ImageReader, "_read", lambda self, image: go_on.wait(20))

    async def run() -> None:
        reader = ImageReader(ServiceSettings(parse_metrics(["length"])))
        reading = [asyncio.ensure_future(reader.read("slow.png")) for _ in range(40)]
        await asyncio.wait_for(asyncio.to_thread(lambda: None), 5)
        go_on.set()
        await asyncio.gather(*reading)

    try:
        asyncio.run(run())
    finally:
        go_on.set()
