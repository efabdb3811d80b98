"""CLIPScore and its kin: the formula beside plain open_clip, checkpoints of every layout, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from reward import CaptionSample, load_scorer
from reward.errors import CheckpointError
from reward.metrics.base import Scorer
from reward.metrics.clipscore.scorer import ClipScorer, LongClipScorer, PacScorer, RefClipScorer
from tests.contract import SAMPLES, ScorerContract
from tests.toys.loopback_hub import LoopbackHub
from tests.toys.pictures import png

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
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A CLIP in open_clip's layout, one in CLIP's own under a key as fine-tuned ones are published, a Long-CLIP."""
    folder = tmp_path_factory.mktemp("clip")
    state, long = make_clip(40).state_dict(), make_clip(248).state_dict()
    save_file(state, folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model_cfg(40), "preprocess_cfg": {}}))
    files = {"pacscore": folder.parent / "clip_ViT-tiny.pth", "longclipscore": folder.parent / "longclip.pt"}
    torch.save({"state_dict": state}, files["pacscore"])
    torch.save({**long, "positional_embedding_res": long["positional_embedding"].clone()}, files["longclipscore"])
    return {"clipscore": folder, **files}


@pytest.fixture(scope="module")
def folder(sources: dict[str, Path]) -> Path:
    return sources["clipscore"]


@pytest.fixture(scope="module", params=["clipscore", "pacscore", "longclipscore"])
def scorer(request: pytest.FixtureRequest, sources: dict[str, Path]) -> Scorer:
    return load_scorer(request.param, sources[request.param], device="cpu")


class TestClipScorers(ScorerContract):
    """The contract, on checkpoints of three layouts."""


def pictures(count: int) -> list[bytes]:
    rng = np.random.default_rng(0)
    return [png(Image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8))) for _ in range(count)]


@pytest.mark.slow
def test_scores_are_those_of_the_papers_formulas_on_plain_open_clip(folder: Path) -> None:
    images, captions = pictures(5), ["A red star.", "Two dogs run", "grass", "A house and a tree", "It is late!"]
    references = [captions[row - 1 :: -2] for row in range(1, 6)]
    texts = list(zip(captions, references, strict=True))
    samples = [CaptionSample(caption, image, known) for image in images for caption, known in texts]
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokenize = open_clip.get_tokenizer(f"local-dir:{folder}")

    def embed(*texts: str) -> torch.Tensor:
        encoded = model.encode_text(tokenize([f"A photo depicts {text}" for text in texts]))
        return torch.nn.functional.normalize(encoded, dim=-1)

    clip, refclip, refpac = [], [], []
    with torch.inference_mode():
        for sample in samples:
            pixels = preprocess(Image.open(BytesIO(sample.image))).unsqueeze(0)  # type: ignore[arg-type]
            image = torch.nn.functional.normalize(model.eval().encode_image(pixels), dim=-1)
            candidate = embed(sample.candidate)
            first = 2.5 * max(float(image @ candidate.T), 0)
            second = max(float((candidate @ embed(*sample.references).T).max()), 0)
            clip.append(first)
            for scores, each in ((refclip, first), (refpac, 0.8 * first)):
                scores.append(2 * each * second / (each + second) if each + second else 0.0)
    pac = [0.8 * x for x in clip]
    formulas = {"clipscore": clip, "refclipscore": refclip, "pacscore": pac, "refpacscore": refpac}
    for name, expected in formulas.items():
        found = load_scorer(name, folder, device="cpu").score(samples).scores[:, 0]
        assert found == pytest.approx(expected, abs=1e-6)
    assert min(clip) > 0.1  # nothing is cut off at 0 here
    assert np.std(refclip) > 0.01


def test_files_of_pac_s_are_read_as_their_authors_code_reads_them(tmp_path: Path) -> None:
    """LoRA by hand; that the sums are those of the authors' code was tried with that code itself, to 2e-6."""
    plain = make_clip(40).state_dict()
    state = {key: value.clone() for key, value in plain.items()}
    generator = torch.Generator().manual_seed(0)
    for key in [
        name for name in plain if name.endswith(("in_proj_weight", "out_proj.weight", "conv1.weight", "c_fc.weight"))
    ]:
        stem = key + "_" if "in_proj" in key else key.removesuffix("weight")
        rows, side = (plain[key].shape[0], 16) if "conv1" in key else (plain[key].shape[0], 1)
        first = torch.randn(4 * side, plain[key].numel() // rows // side, generator=generator)
        second = torch.randn(rows * side, 4 * side, generator=generator)
        state |= {f"{stem}lora_A": first, f"{stem}lora_B": second}
        if "c_fc" not in key:  # which was saved with its LoRA
            plain[key] = plain[key] + (second @ first).view_as(plain[key]) / 4
    torch.save({"state_dict": state}, tmp_path / "PAC++_clip_tiny.pth")
    found = load_scorer("pacscore", tmp_path / "PAC++_clip_tiny.pth", device="cpu").model  # type: ignore[attr-defined]
    for key, value in found.clip.state_dict().items():
        assert torch.allclose(value, plain[key], atol=1e-6), key
    assert found.clip.transformer.resblocks[0].mlp.gelu.__class__.__name__ == "QuickGELU"
    torch.save({"state_dict": make_clip(40).state_dict()}, tmp_path / "openClip_tiny.pth")
    laion = load_scorer("refpacscore", tmp_path / "openClip_tiny.pth", device="cpu").model  # type: ignore[attr-defined]
    assert laion.clip.transformer.resblocks[0].mlp.gelu.__class__.__name__ == "GELU"
    assert (laion.preprocess_cfg["mean"], found.preprocess_cfg.get("mean")) == ([0.5] * 3, None)


def test_a_cosine_below_0_scores_0_also_where_a_reference_is_the_caption_itself(folder: Path) -> None:
    turned = ClipScorer.from_pretrained(folder, device="cpu").model
    with torch.no_grad():
        turned.clip.text_projection.neg_()
    sample = CaptionSample("A red star.", pictures(1)[0], ["A red star."])
    for scorer in (ClipScorer(turned), RefClipScorer(turned), PacScorer(turned)):
        assert scorer.score([sample]).scores.tolist() == [[0.0]]


def test_each_image_and_each_text_is_embedded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = RefClipScorer.from_pretrained(folder, device="cpu")
    seen: Counter[str] = Counter()
    for kind in ("image", "text"):
        encode = getattr(scorer.model, f"encode_{kind}")
        counted = partial(lambda x, kind, encode: seen.update({kind: len(x)}) or encode(x), kind=kind, encode=encode)
        monkeypatch.setattr(scorer.model, f"encode_{kind}", counted)
    samples = [
        CaptionSample(text, Image.open(BytesIO(image)), ["a star", "a dog"])
        for image in pictures(2)
        for text in ("a dog", "a cat", "a cat")
    ]
    scorer.score(samples)
    assert seen == {"image": 2, "text": 3}


def test_what_the_text_tower_cannot_read_is_flagged(sources: dict[str, Path]) -> None:
    image = pictures(1)[0]
    samples = [CaptionSample(WORDS * 4, image, ["short"]), CaptionSample("short", image, [WORDS * 4])]
    for name, flags in {
        "clipscore": [True, False],
        "refclipscore": [True, True],
        "longclipscore": [False, False],
        "clipscore_avg": [False, False],
    }.items():
        source = sources.get(name, sources["clipscore"])
        assert load_scorer(name, source).score(samples).truncated.tolist() == flags


@pytest.mark.slow
def test_a_checkpoint_names_the_clip_and_only_of_its_own_metric(sources: dict[str, Path], tmp_path: Path) -> None:
    for source in ("embedded", sources["clipscore"], sources["pacscore"]):
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
    sources: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    with pytest.raises(CheckpointError, match=r"no file named model\.safetensors"):
        ClipScorer.from_pretrained(tmp_path)
    (tmp_path / "longclip.pth").write_bytes(sources["pacscore"].read_bytes())
    here = ClipScorer.from_pretrained(tmp_path, device="cpu", activation="quick_gelu")
    there = ClipScorer.from_pretrained(sources["clipscore"], device="cpu")
    assert np.array_equal(here.score(SAMPLES).scores, there.score(SAMPLES).scores)


@pytest.mark.parametrize(
    ("load", "source", "message"),
    [
        (LongClipScorer.from_pretrained, "embedded", r"no longclipscore checkpoint is shipped.*Zhang/LongCLIP-L"),
        (PacScorer.from_pretrained, "embedded", r"no pacscore checkpoint is shipped.*authors of PAC-S"),
        (partial(ClipScorer.from_pretrained, revision="v2"), "owner/clip", r"hf download owner/clip --revision v2"),
        (ClipScorer.from_pretrained, "ViT-B-32:nothing", r"ViT-B-32:nothing.*not a known tag"),
        (ClipScorer.from_pretrained, "ViT-B/32", "write ViT-B-32:openai"),
        (ClipScorer.from_pretrained, "owner/absent", "owner/absent"),
    ],
)
def test_sources_that_are_not_for_the_metric_are_refused_with_what_to_give(
    load: Any, source: str, message: str, hub: LoopbackHub
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(source)


def test_an_architecture_with_a_tag_has_the_activation_of_its_weights(
    folder: Path, tmp_path: Path, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from open_clip import factory, pretrained

    plain = {key: value for key, value in model_cfg(40).items() if key != "quick_gelu"}
    monkeypatch.setitem(factory._MODEL_CONFIGS, "RN50", plain)
    tag = pretrained._pcfg(hf_hub="owner/tiny/", quick_gelu=True)
    monkeypatch.setitem(pretrained._PRETRAINED, "RN50", {"openai": tag})
    hub.add_folder("owner/tiny", folder)
    found = load_scorer("clipscore", "RN50:openai", device="cpu").score(SAMPLES).scores
    expected = load_scorer("clipscore", folder, device="cpu").score(SAMPLES).scores  # quick_gelu in its configuration
    assert found == pytest.approx(expected, abs=1e-6)
