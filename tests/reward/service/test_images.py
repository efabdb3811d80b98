"""Images of requests: where they may come from, and what is refused."""

import asyncio
import base64
import os
import threading

import pytest
from PIL import Image

from reward.service import scoring
from reward.service.schemas import ScoreSample
from tests.reward.service.in_process import App
from tests.toys.pictures import png

PNG = png(Image.new("1", (2, 2)))  # less than 100 characters of base64
BASE64 = base64.b64encode(PNG).decode()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """`inner/a.png` in a folder beside which other files lie, with links that stay in it and that leave it."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "root" / "inner").mkdir(parents=True)
    for name in ("root/inner/a.png", "secret.png", "rootless.png"):
        (folder / name).write_bytes(PNG)
    (folder / "root" / "inside.png").symlink_to(folder / "root" / "inner" / "a.png")
    (folder / "root" / "outside.png").symlink_to(folder / "secret.png")
    (folder / "root" / "up").symlink_to(folder)
    (folder / "linked").symlink_to(folder / "root")
    (folder / "root" / "text.png").write_text("no image")
    os.mkfifo(folder / "root" / "pipe.png")
    return folder / "root"


@pytest.fixture(scope="module")
def app(root):
    return App("beitscore", image_root=root.parent / "linked")


def ask(app, image, status=200):
    """The scores and the reason of a caption of an image, or why the request is refused."""
    reply = app.post("/score", {"caption": "A red star.", "image": image}, status)
    return reply["error"] if status != 200 else (reply["samples"][0]["scores"], reply["samples"][0]["errors"][0])


def test_one_image_in_all_its_forms_has_one_score(app, root):
    percent = "".join(f"%{byte:02x}" for byte in PNG)
    paths = ["inner/a.png", "inside.png", str(root / "inner" / "a.png")]
    forms = [BASE64, f"data:image/png;base64,{BASE64}", f"data:image/png,{percent}", {"base64": BASE64}]
    forms += [{"path": path} for path in paths]
    ((score,),), _ = ask(app, forms[0])
    assert 0 < score < 1
    for form in forms:
        assert ask(app, form) == ([[score]], None)


@pytest.mark.parametrize(
    "path", ["outside.png", "up/secret.png", "inner/../../secret.png", "../rootless.png", "/etc/passwd", "..", ""]
)
def test_paths_out_of_the_root_are_refused(app, path):
    assert "leads out of the image root" in ask(app, {"path": path}, 422)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ({"path": "no.png"}, "No such file"),
        ("http://example.org/a.png", "not base64"),  # nothing is downloaded
        ("a.png", 'a path is written as {"path": "..."}'),
        ({"path": "text.png"}, "not an image"),
        ({"path": "a\0.png"}, "not a path"),
        ({"base64": "%%"}, "not base64"),
        ({"base64": ""}, "not an image"),
        ("data:image/png;base64", "no comma"),
    ],
)
def test_an_image_that_cannot_be_read_is_said_of_its_sample(app, image, reason):
    scores, told = ask(app, image)
    assert (scores, reason in told) == ([[None]], True)


@pytest.mark.parametrize(
    ("settings", "image", "reason"),
    [
        ({}, {"path": "inner/a.png"}, "--image-root"),
        ({"image_root": "ROOT"}, {"path": "pipe.png"}, "is no file"),  # and is not waited for
        ({}, {"url": "file:///etc/passwd"}, "base64"),
        # a pixel bomb, before it is unpacked
        ({"image_root": "ROOT", "max_pixels": 3}, {"path": "inner/a.png"}, "too many pixels"),
        ({"max_pixels": 3}, BASE64, "too many pixels"),
    ],
)
def test_what_the_service_does_not_read_is_refused(root, settings, image, reason):
    app = App("length", **{name: root if value == "ROOT" else value for name, value in settings.items()})
    assert reason in ask(app, image, 422)


def test_images_are_read_at_the_same_time_and_hold_up_nothing_else(monkeypatch):
    together = threading.Barrier(17)  # 16 images, and what else waits in the threads of the event loop, which are few
    monkeypatch.setattr(scoring, "read_image", lambda image, settings: str(together.wait(20)).encode())

    async def run():
        asked = [ScoreSample(candidates=["A star."], image=f"{number}.png") for number in range(16)]
        scored = asyncio.ensure_future(scoring.Scoring(App("length").thread).score("length", asked, None))
        await asyncio.to_thread(together.wait, 20)
        assert [each.scores for each in await scored] == [[[2.0]]] * 16

    asyncio.run(run())
