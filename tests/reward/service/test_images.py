"""Images of requests: where they may come from, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
from pathlib import Path

import pytest

from reward.service import scoring
from reward.service.schemas import ScoreSample
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
    assert "capreward_captions_total{" not in app.send("GET", "/metrics").text  # nothing was scored


def test_an_address_is_not_read(app: App) -> None:
    assert "No such file" in app.score_image("http://example.org/a.png")["samples"][0]["errors"][0]
    assert "base64" in app.score_image({"url": "file:///etc/passwd"}, 422)["error"]


def test_images_that_come_slowly_hold_up_nothing_else(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """What else waits comes through the threads of the event loop, which are few."""
    go_on = threading.Event()
    monkeypatch.setattr(scoring, "read_image", lambda image, settings: str(go_on.wait(20)).encode())

    async def run() -> None:
        asked = [ScoreSample(candidates=["A star."], image=f"{number}.png") for number in range(40)]
        scored = asyncio.ensure_future(scoring.Scoring(app.thread).score("vela", asked, None))
        await asyncio.wait_for(asyncio.to_thread(lambda: None), 5)
        go_on.set()
        await scored

    try:
        asyncio.run(run())
    finally:
        go_on.set()
