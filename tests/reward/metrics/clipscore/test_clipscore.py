"""CLIPScore and its kin: the formula beside plain open_clip, checkpoints of every layout, and what is refused."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from reward import CaptionSample, checkpoints, load_scorer
from reward.errors import CheckpointError
from reward.metrics.base import Scorer
from reward.metrics.clipscore.scorer import ClipScorer, LongClipScorer, PacScorer, RefClipScorer
from tests.contract import SAMPLES, ScorerContract
from tests.loopback_hub import LoopbackHub

WORDS = "A red star stands on the grass beside a small house . "


def model_cfg(context_length: int) -> dict[str, Any]:
    """A CLIP with OpenAI's tokens, small otherwise; heads are 64 wide, as in every published checkpoint."""
    return {
        "embed_dim": 16,
        "quick_gelu": True,
        "vision_cfg": {"image_size": 32, "patch_size": 16, "width": 64, "layers": 1, "head_width": 64},
        "text_cfg": {"context_length": context_length, "vocab_size": 49408, "width": 64, "heads": 1, "layers": 1},
    }


def make_clip(context_length: int, seed: int = 4) -> open_clip.CLIP:
    torch.manual_seed(seed)
    return open_clip.CLIP(**model_cfg(context_length)).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CLIP in open_clip's layout."""
    folder = tmp_path_factory.mktemp("clip")
    save_file(make_clip(40).state_dict(), folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model_cfg(40), "preprocess_cfg": {}}))
    return folder


@pytest.fixture(scope="module")
def pac_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights in CLIP's own layout under the key `state_dict`, as fine-tuned ones are published."""
    file = tmp_path_factory.mktemp("pac") / "clip_ViT-tiny.pth"
    torch.save({"state_dict": make_clip(40).state_dict()}, file)
    return file


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("long") / "longclip.pt"
    state = make_clip(248).state_dict()
    torch.save({**state, "positional_embedding_res": state["positional_embedding"].clone()}, file)
    return file


@pytest.fixture(scope="module", params=["open_clip", "pac", "long"])
def scorer(request: pytest.FixtureRequest, folder: Path, pac_file: Path, long_file: Path) -> Scorer:
    metric, source = {
        "open_clip": ("clipscore", folder),
        "pac": ("pacscore", pac_file),
        "long": ("longclipscore", long_file),
    }[request.param]
    return load_scorer(metric, source, device="cpu")


class TestClipScorers(ScorerContract):
    """The contract, on checkpoints of three layouts."""


def pictures(count: int) -> list[bytes]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        buffer = BytesIO()
        Image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(buffer, "PNG")
        found.append(buffer.getvalue())
    return found


def test_scores_are_those_of_the_papers_formulas_on_plain_open_clip(folder: Path) -> None:
    images, captions = pictures(5), ["A red star.", "Two dogs run", "grass", "A house and a tree", "It is late!"]
    references = [captions[row - 1 :: -2] for row in range(1, 6)]
    samples = [
        CaptionSample(caption, image, known)
        for image in images
        for caption, known in zip(captions, references, strict=True)
    ]
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokenize = open_clip.get_tokenizer(f"local-dir:{folder}")

    def embed(texts: list[str]) -> torch.Tensor:
        return torch.nn.functional.normalize(
            model.encode_text(tokenize([f"A photo depicts {t}" for t in texts])), dim=-1
        )

    clip, refclip = [], []
    with torch.inference_mode():
        for sample in samples:
            pixels = preprocess(Image.open(BytesIO(sample.image))).unsqueeze(0)  # type: ignore[arg-type]
            image = torch.nn.functional.normalize(model.eval().encode_image(pixels), dim=-1)
            candidate = embed([sample.candidate])
            first = 2.5 * max(float(image @ candidate.T), 0)
            second = max(float((candidate @ embed(list(sample.references)).T).max()), 0)
            clip.append(first)
            refclip.append(2 * first * second / (first + second) if first + second else 0.0)
    for name, expected in (("clipscore", clip), ("refclipscore", refclip), ("pacscore", [0.8 * x for x in clip])):
        found = load_scorer(name, folder, device="cpu").score(samples).scores[:, 0]
        assert found == pytest.approx(expected, abs=1e-6)
    assert min(clip) > 0.1  # nothing is cut off at 0 here
    assert np.std(refclip) > 0.01


def test_a_cosine_below_0_scores_0_also_where_a_reference_is_the_caption_itself(folder: Path) -> None:
    turned = ClipScorer.from_pretrained(folder, device="cpu").model
    with torch.no_grad():
        turned.clip.text_projection.neg_()
    sample = CaptionSample("A red star.", pictures(1)[0], ["A red star."])
    for scorer in (ClipScorer(turned), RefClipScorer(turned), PacScorer(turned)):
        assert scorer.score([sample]).scores.tolist() == [[0.0]]


def test_each_image_and_each_text_is_embedded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = RefClipScorer.from_pretrained(folder, device="cpu")
    seen = {"image": 0, "text": 0}
    encode_image, encode_text = scorer.model.encode_image, scorer.model.encode_text
    monkeypatch.setattr(
        scorer.model, "encode_image", lambda x: seen.update(image=seen["image"] + len(x)) or encode_image(x)
    )
    monkeypatch.setattr(
        scorer.model, "encode_text", lambda x: seen.update(text=seen["text"] + len(x)) or encode_text(x)
    )
    samples = [
        CaptionSample(text, Image.open(BytesIO(image)), ["a star", "a dog"])
        for image in pictures(2)
        for text in ("a dog", "a cat", "a cat")
    ]
    scorer.score(samples)
    assert seen == {"image": 2, "text": 3}


def test_what_the_text_tower_cannot_read_is_flagged(folder: Path, long_file: Path) -> None:
    image = pictures(1)[0]
    samples = [CaptionSample(WORDS * 4, image, ["short"]), CaptionSample("short", image, [WORDS * 4])]
    assert load_scorer("clipscore", folder).score(samples).truncated.tolist() == [True, False]
    assert load_scorer("refclipscore", folder).score(samples).truncated.tolist() == [True, True]
    assert load_scorer("longclipscore", long_file).score(samples).truncated.tolist() == [False, False]
    assert load_scorer("clipscore_avg", folder).score(samples).truncated.tolist() == [False, False]


def test_the_mean_over_sentences_is_that_of_the_cosines(folder: Path) -> None:
    image = pictures(1)[0]
    sentences = [CaptionSample(text, image) for text in ("A red star stands.", "Two dogs!", "It is late")]
    whole = CaptionSample(" ".join(sample.candidate for sample in sentences), image)
    expected = load_scorer("clipscore", folder).score(sentences).scores.mean()
    assert load_scorer("clipscore_avg", folder).score([whole]).scores[0, 0] == pytest.approx(expected)


def test_a_checkpoint_names_the_clip_and_only_of_its_own_metric(folder: Path, pac_file: Path, tmp_path: Path) -> None:
    for source in ("embedded", folder, pac_file):
        scorer = ClipScorer.from_pretrained(source, device="cpu")
        scorer.save_pretrained(tmp_path)
        again = load_scorer("clipscore", tmp_path, device="cpu")
        assert np.array_equal(again.score(SAMPLES).scores, scorer.score(SAMPLES).scores)
    with pytest.raises(CheckpointError, match="of metric 'clipscore', but a checkpoint of 'refclipscore'"):
        RefClipScorer.from_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="pass source="):
        ClipScorer(scorer.model).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"metric": "clipscore"}')
    with pytest.raises(CheckpointError, match="names no CLIP"):
        ClipScorer.from_pretrained(tmp_path)


def test_a_configuration_of_other_programs_beside_the_weights_does_no_harm(
    folder: Path, pac_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    with pytest.raises(CheckpointError, match=r"holds no open_clip_config\.json.*it holds: none"):
        ClipScorer.from_pretrained(tmp_path)
    (tmp_path / "longclip.pth").write_bytes(pac_file.read_bytes())
    found = ClipScorer.from_pretrained(tmp_path, device="cpu").score(SAMPLES).scores
    assert np.array_equal(found, ClipScorer.from_pretrained(folder, device="cpu").score(SAMPLES).scores)


def test_the_shipped_clip_is_not_passed_off_as_the_papers(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints._warn_embedded.cache_clear()
    caplog.set_level("WARNING", logger="reward.checkpoints")  # the demo, which another test runs, lowers it
    load_scorer("clipscore", folder)
    assert "synthetic scenes" not in caplog.text
    for _ in range(2):
        load_scorer("refclipscore")
    assert caplog.text.count("synthetic scenes") == 1
    assert "a published CLIP" in caplog.text


def test_the_towers_say_where_they_are(folder: Path) -> None:
    assert ClipScorer.from_pretrained(folder, device="meta").model.device == torch.device("meta")


def test_half_precision_on_request() -> None:
    assert next(ClipScorer.from_pretrained(dtype="bfloat16").model.parameters()).dtype is torch.bfloat16


def test_sources_that_are_not_for_the_metric_are_refused_with_what_to_give(folder: Path, hub: LoopbackHub) -> None:
    with pytest.raises(CheckpointError, match=r"no longclipscore checkpoint is shipped.*BeichenZhang/LongCLIP-L"):
        LongClipScorer.from_pretrained("embedded")
    with pytest.raises(CheckpointError, match=r"no pacscore checkpoint is shipped.*authors of PAC-S"):
        PacScorer.from_pretrained("embedded")
    with pytest.raises(CheckpointError, match=r"hf download owner/clip --revision v2"):
        ClipScorer.from_pretrained("owner/clip", revision="v2")
    with pytest.raises(CheckpointError, match=r"ViT-B-32:nothing.*not a known tag"):
        ClipScorer.from_pretrained("ViT-B-32:nothing")
    with pytest.raises(CheckpointError, match="owner/absent"):
        ClipScorer.from_pretrained("owner/absent")


def test_an_architecture_with_a_tag_has_the_activation_of_its_weights(
    folder: Path, tmp_path: Path, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from open_clip import factory, pretrained

    plain = {key: value for key, value in model_cfg(40).items() if key != "quick_gelu"}
    monkeypatch.setitem(factory._MODEL_CONFIGS, "Tiny", plain)
    tag = pretrained._pcfg(hf_hub="owner/tiny/", quick_gelu=True)
    monkeypatch.setitem(pretrained._PRETRAINED, "Tiny", {"openai": tag})
    hub.add_folder("owner/tiny", folder)
    found = load_scorer("clipscore", "Tiny:openai", device="cpu").score(SAMPLES).scores
    expected = load_scorer("clipscore", folder, device="cpu").score(SAMPLES).scores  # quick_gelu in its configuration
    assert found == pytest.approx(expected, abs=1e-6)
