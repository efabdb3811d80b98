"""What the embedded checkpoints say of their domain: scenes are of it, photos are not, and no score changes."""

from __future__ import annotations

import base64
import json
import logging
import random
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skimage.data
import sklearn.datasets
from PIL import Image

import reward.domain
from reward import CaptionSample, MetricReward, load_scorer
from reward.checkpoints import read_config, resolve_checkpoint
from reward.cli.reports import report_scores
from reward.domain import Domain
from reward.errors import CheckpointError
from reward.images import image_key
from reward.metrics.beitscore import training as beitscore_training
from reward.metrics.vela import training as vela_training
from reward.scenes import make_rated_sample, render
from reward.scoring.dataset import score_dataset
from reward.scoring.results import ScoreColumns
from reward.scoring.summary import SummaryBuilder
from tests.json_lines import write_lines
from tests.pictures import png
from tests.reward.service.in_process import App

SCENES = [make_rated_sample(random.Random(f"domain test {index}")) for index in range(300)]
DRAWN = [render(scene.scene) for scene in SCENES]
PHOTOS = [
    *(Image.fromarray(load()) for load in (skimage.data.astronaut, skimage.data.coffee, skimage.data.chelsea)),
    *(Image.fromarray(load()) for load in (skimage.data.camera, skimage.data.rocket)),
    *(Image.fromarray(array) for array in sklearn.datasets.load_sample_images().images),
]
PHOTO_CAPTION = "A woman in an orange space suit smiles in front of a flag."
ROWS = [
    CaptionSample("There is a red star.", DRAWN[0], ["There is a red star."]),
    CaptionSample(PHOTO_CAPTION, DRAWN[0], ["There is a red star."]),
    CaptionSample("There is a red star.", PHOTOS[0], ["There is a red star."]),
]
UNLIKE = [False, True, True]


@pytest.fixture(autouse=True)
def not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward.domain, "_warned", set())


@pytest.fixture(scope="module")
def domain() -> Domain:
    found = Domain.of_config(read_config(resolve_checkpoint("embedded", metric="vela"), metric="vela"))
    assert found is not None
    return found


def changed(image: Image.Image, side: int | None, quality: int | None) -> Image.Image:
    image = image.convert("RGB") if side is None else image.convert("RGB").resize((side, side))
    if quality is None:
        return image
    file = BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


@pytest.mark.parametrize("quality", [None, 95, 70])
@pytest.mark.parametrize("side", [None, 64, 130, 336])
def test_scenes_are_of_the_domain_and_photos_are_not(domain: Domain, side: int | None, quality: int | None) -> None:
    scenes = [domain.knows_image(changed(image, side, quality)) for image in DRAWN]
    photos = [domain.knows_image(changed(image, side, quality)) for image in PHOTOS]
    photos += [domain.knows_image(changed(image.convert("L"), side, quality)) for image in PHOTOS]
    assert np.mean(scenes) >= 0.99
    assert not any(photos)


def test_captions_of_scenes_are_of_the_domain_and_those_of_photos_are_not(domain: Domain) -> None:
    assert np.mean([domain.knows_caption(scene.candidate.caption.text) for scene in SCENES]) >= 0.99
    assert domain.knows_caption("?!")
    for caption in (PHOTO_CAPTION, "A cat.", "Un chat noir sur un canapé.", "一只猫"):
        assert not domain.knows_caption(caption)


@pytest.mark.parametrize("metric", ["vela", "beitscore", "clipscore", "refclipscore", "vela_avg"])
def test_samples_are_flagged_and_scores_stay_bit_for_bit(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = load_scorer(metric)
    table = scorer.score(ROWS)
    assert table.out_of_domain is not None
    assert table.out_of_domain.tolist() == UNLIKE
    monkeypatch.setattr(getattr(scorer, "scorer", scorer), "domain", None)
    without = scorer.score(ROWS)
    assert without.out_of_domain is None
    assert np.array_equal(table.scores, without.scores)
    assert not table.errors


def test_the_warning_comes_once_a_metric_with_the_line_to_write(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="reward.domain")
    vela, beitscore = load_scorer("vela"), load_scorer("beitscore")
    scenes = [CaptionSample(one.candidate.caption.text, image) for one, image in zip(SCENES[:20], DRAWN, strict=False)]
    vela.score([*scenes, ROWS[2]])  # one in twenty may be a mistake
    assert not caplog.records
    for scorer in (vela, vela, beitscore):
        scorer.score(ROWS)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["vela", "beitscore"]
    message = caplog.messages[0]
    assert "2 of 3 samples are out of domain" in message
    for line in ('MetricReward("vela", "folder-or-hub-id")', 'MetricReward("clipscore", "ViT-L-14:openai")'):
        assert line in message


def test_flags_are_kept_with_the_embeddings_of_images(tmp_path: Path) -> None:
    scorer = load_scorer("vela", cache=tmp_path)
    first = scorer.score(ROWS)
    again = scorer.score(ROWS)
    assert scorer.caches["images"].hits == 2
    entry = image_key(PHOTOS[0])
    kept = scorer.caches["images"].load(entry)
    scorer.caches["images"].save(entry, {"features": kept["features"]})  # as an earlier version left it
    for table in (first, again, scorer.score(ROWS)):
        assert table.out_of_domain.tolist() == UNLIKE


def call(rewarding: Any, rows: list[CaptionSample]) -> dict[str, float]:
    logged: dict[str, float] = {}
    columns = {"image": [row.image for row in rows], "references": [list(row.references) for row in rows]}
    completions = [row.candidate for row in rows]
    rewarding(["Describe."] * len(rows), completions, log_metric=logged.__setitem__, **columns)
    return logged


def test_training_logs_the_share_for_checkpoints_that_say_what_they_know(tmp_path: Path) -> None:
    assert call(MetricReward("vela"), [*ROWS, ROWS[0]])["vela/out_of_domain"] == 0.5
    whole = MetricReward("vela", name="caption")
    assert call(whole.aspect("flu"), ROWS)["caption/out_of_domain"] == pytest.approx(2 / 3)
    no_word = CaptionSample("...", DRAWN[0], ["There is a red star."])
    assert call(MetricReward("vela"), [no_word, ROWS[2]])["vela/out_of_domain"] == 0.5

    scorer = load_scorer("vela")
    scorer.save_pretrained(tmp_path / "same")
    assert load_scorer("vela", tmp_path / "same").domain == scorer.domain
    type(scorer)(scorer.model).save_pretrained(tmp_path / "own")  # as training leaves it
    logged = call(MetricReward("vela", tmp_path / "own", name="own"), ROWS)
    assert "own/truncated" in logged
    assert "own/out_of_domain" not in logged


@pytest.mark.parametrize(("metric", "training"), [("vela", vela_training), ("beitscore", beitscore_training)])
def test_a_training_that_starts_from_an_embedded_checkpoint_takes_no_domain_over(metric: str, training: Any) -> None:
    config = read_config(resolve_checkpoint("embedded", metric=metric), metric=metric)
    assert "domain" in config
    assert "domain" not in json.dumps(training.checkpoint_settings(config))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"grounds": []}, "grounds must be 1 to 32 colours"),
        ({"grounds": [[0, 0, 300]]}, "levels of 0 to 255"),
        ({"grounds": ["red"]}, "grounds must be a list of"),
        ({"least_ground": "much"}, "least_ground must be a number of 0 to 1, got 'much'"),
        ({"most_unknown": True}, "most_unknown must be a number"),
        ({"words": ["a"]}, "words must be a text"),
        ({"colour": 1}, "colour"),
    ],
)
def test_an_entry_that_cannot_be_read_is_refused(domain: Domain, change: dict[str, Any], fault: str) -> None:
    assert Domain.of_config({"domain": domain.to_config()}) == domain
    with pytest.raises(CheckpointError, match=fault):
        Domain.of_config({"domain": domain.to_config() | change})


def test_summaries_count_captions_out_of_domain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, image in (("scene.png", DRAWN[0]), ("photo.png", PHOTOS[0])):
        image.save(tmp_path / name)
    rows = [{"image": "scene.png" if row.image is DRAWN[0] else "photo.png", "caption": row.candidate} for row in ROWS]
    data = write_lines(tmp_path / "rows.jsonl", [*rows, {"image": "absent.png", "caption": "A star."}])
    report_scores(score_dataset(data, "vela", tmp_path / "scores.jsonl"), quiet=False, what="scored")
    printed = " ".join(capsys.readouterr().err.split())
    assert "2 of 4 captions, or their images, are unlike what the checkpoint was trained on" in printed
    assert "capreward metrics --for photos" in printed
    summary = json.loads((tmp_path / "scores.jsonl.summary.json").read_text())["summary"]
    assert summary["out_of_domain"] == 2
    assert score_dataset(data, "vela", tmp_path / "scores.jsonl").out_of_domain == 2  # read back
    assert score_dataset(data, "length", tmp_path / "lengths.jsonl").out_of_domain is None
    both = score_dataset(data, ["length", "vela", "beitscore"], tmp_path / "several.jsonl")
    assert (both.captions, both.out_of_domain) == (4, 2)


def test_captions_without_a_score_are_in_no_domain() -> None:
    spec, builder = load_scorer("vela").spec, SummaryBuilder(["descriptiveness", "relevance", "fluency", "reward"])
    results: list[Any] = [[[[0.1, 0.2, 0.3, True], False]], [[None, False, "image", "gone"]]]
    assert ScoreColumns(spec, None, "", []).build([{}] * 2, results, builder)["fluency"] == [0.3, None]
    other = SummaryBuilder(["descriptiveness", "relevance", "fluency", "reward"])
    for part in ("one part", "another"):
        other.add_record(builder.record(), part)
    assert (other.captions, builder.out_of_domain, other.out_of_domain) == (4, 1, 2)


def test_services_say_it_of_each_caption() -> None:
    def data_url(image: Image.Image) -> str:
        return "data:image/png;base64," + base64.b64encode(png(image)).decode()

    app = App("vela", "unigram")
    info = app.send("GET", "/info").json()["metrics"]
    assert "drawings" in info["vela"]["domain"]["about"]
    assert info["unigram"]["domain"] is None
    samples = [
        {"candidates": [row.candidate for row in ROWS[:2]] + [" "], "image": data_url(DRAWN[0])},
        {"candidates": [ROWS[2].candidate], "image": data_url(PHOTOS[0])},
    ]
    reply = app.post("/score", {"metric": "vela", "samples": samples})
    assert [sample["out_of_domain"] for sample in reply["samples"]] == [[False, True, False], [True]]
    words = {"metric": "unigram", "samples": [{"candidates": ["A star."], "references": ["A star."]}]}
    assert app.post("/score", words)["samples"][0]["out_of_domain"] is None
