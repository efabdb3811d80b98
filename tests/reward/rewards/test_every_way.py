"""What a row gets as its reward: the same in process, service, file and Ray, and what adapters make of None."""

import math
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from integrations.hf_generate import rerank
from integrations.ray_data import score_files
from reward import CaptionSample, MetricReward, registry
from reward.decoding.selection import rate_candidates
from tests.integrations.test_adapters import by_ms_swift, by_openrlhf, by_verl
from tests.reward.scoring.small_data import scored
from tests.reward.service.in_process import App
from tests.toys import trainer
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.picture_scorer import SPEC, PictureScorer

MISSING = -9.0  # what adapters are told to give in place of None
GOOD, DIM, LOWEST = 1.0, 0.2, "the lowest"
REFERENCES = ["A star."]

# caption, image, references; what it gets; what an adapter makes of that
ROWS = [
    (("a red star", "white.png", REFERENCES), GOOD, GOOD),
    (("a dim star", "grey.png", REFERENCES), DIM, DIM),
    (("...", "white.png", REFERENCES), LOWEST, LOWEST),
    (("", "white.png", REFERENCES), LOWEST, LOWEST),
    (("\N{WHITE MEDIUM STAR}", "white.png", REFERENCES), LOWEST, LOWEST),
    (("fail", "white.png", REFERENCES), None, MISSING),
    (("a red star", None, REFERENCES), None, MISSING),
    (("...", None, REFERENCES), None, MISSING),
    (("a red star", "torn.png", REFERENCES), None, MISSING),
    (("...", "torn.png", REFERENCES), None, MISSING),
    (("a red star", "white.png", []), None, MISSING),
    (("...", "white.png", []), None, MISSING),
]
# Only where a caption can be None: a service refuses the request, and OpenRLHF's response is a text.
NO_CAPTION = ((None, "white.png", REFERENCES), None, MISSING)


@pytest.fixture(params=[-1.0, -math.inf], ids=["bounded", "without bound"])
def lowest(request, monkeypatch):
    """Installs the metric `picture` with this range; gives the lowest reward of the rows above."""
    spec = replace(SPEC, range=(request.param, math.inf), needs_references=True)
    monkeypatch.setattr(PictureScorer, "spec", spec)
    monkeypatch.setattr(registry, "installed_specs", lambda: {"picture": spec})
    return DIM if math.isinf(request.param) else request.param


@pytest.fixture
def folder(tmp_path):
    for name, level in (("white", 255), ("grey", 51)):
        Image.new("RGB", (4, 4), (level,) * 3).save(tmp_path / f"{name}.png")
    (tmp_path / "torn.png").write_bytes(b"no picture")
    return tmp_path


def in_process(rows, folder):
    captions, images, references = zip(*rows, strict=True)
    reward = MetricReward(PictureScorer(), weights={"bright": 1})
    return trainer.call(reward, list(captions), image=list(images), references=list(references))


def by_service(rows, folder):
    app = App("picture", image_root=folder)
    samples = []
    for caption, image, references in rows:
        samples.append({"candidates": [caption], "references": references})
        if image is not None:
            samples[-1]["image"] = {"path": Path(image).name}
    reply = app.post("/score", {"samples": samples, "weights": {"bright": 1}})
    return [reward for sample in reply["samples"] for reward in sample["rewards"]]


def write_data(rows, folder):
    names = ("caption", "image", "references")
    return write_lines(folder / "data.jsonl", [dict(zip(names, row, strict=True)) for row in rows])


def by_file(rows, folder):
    data = write_data(rows, folder)
    written, summary = scored(data, folder / "out.jsonl", PictureScorer(), weights={"bright": 1}, part_rows=4)
    rewards = [row["reward"] for row in written]
    assert summary.scored == len(rewards) - rewards.count(None)
    return rewards


def by_ray(rows, folder):
    data = write_data(rows, folder)
    summary = score_files(data, PictureScorer(), folder / "out", weights={"bright": 1}, workers=0)
    (part,) = (folder / "out").glob("part-*.jsonl")
    rewards = [row["reward"] for row in read_lines(part)]
    assert summary.scored == len(rewards) - rewards.count(None)
    return rewards


def in_folder(rows, folder):
    return [(caption, image and str(folder / image), references) for caption, image, references in rows]


@pytest.mark.parametrize("give", [in_process, by_service, by_file, by_ray])
def test_each_way_gives_a_row_the_same(give, lowest, folder):
    cases = ROWS if give is by_service else [*ROWS, NO_CAPTION]
    rewards = give(in_folder([row for row, _, _ in cases], folder), folder)
    expected = [lowest if value == LOWEST else value for _, value, _ in cases]
    assert rewards == [value if value is None else pytest.approx(value) for value in expected]


@pytest.mark.parametrize("give", [by_verl, by_ms_swift, by_openrlhf])
def test_an_adapter_translates_none_and_nothing_else(give, lowest, folder):
    cases = ROWS if give is by_openrlhf else [*ROWS, NO_CAPTION]
    settings = {"metric": "picture", "weights": {"bright": 1}, "name": uuid.uuid4().hex, "wait": 0.4}
    if give is by_ms_swift:
        del settings["wait"]
    rewards = give(in_folder([row for row, _, _ in cases], folder), **settings, missing=MISSING)
    assert rewards == [pytest.approx(lowest if value == LOWEST else value) for _, _, value in cases]


def test_samples_and_candidates_get_the_same(lowest, folder):
    reward = MetricReward(PictureScorer(), weights={"bright": 1})
    cases = [(row, value) for row, value, _ in ROWS if row[0]]  # a sample has a caption that is not blank
    samples = [CaptionSample(*row) for row, _ in zip(in_folder([row for row, _ in cases], folder), cases, strict=True)]
    expected = [lowest if value == LOWEST else value for _, value in cases]
    assert reward.rewards(samples) == [value if value is None else pytest.approx(value) for value in expected]
    image = str(folder / "grey.png")
    assert rate_candidates([["...", "a star", ""]], [image], [REFERENCES], reward) == [
        [pytest.approx(lowest), pytest.approx(DIM), pytest.approx(lowest)]
    ]
    assert rerank(["...", "a star", ""], image=image, references=REFERENCES, reward=reward) == [1, 0, 2]


def test_only_where_nothing_is_scored_a_metric_without_bound_gives_none(monkeypatch, folder):
    monkeypatch.setattr(PictureScorer, "spec", replace(SPEC, range=(-math.inf, math.inf)))
    rows = [("...", str(folder / "white.png"), []), ("fail", str(folder / "white.png"), [])]
    for give in (in_process, by_file, by_ray):
        assert give(rows, folder) == [None, None]
