"""load_clip: Long-CLIP's original layout against golden outputs, open_clip folders and Hub models, refused weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from reward.backbones import load_clip
from reward.backbones.clip import normalized
from reward.backbones.clip_config import build_clip
from reward.errors import CheckpointError, ConfigError
from tests.reward.metrics.tiny_vela import clip_architecture, make_tokenizer
from tests.toys.loopback_hub import LoopbackHub
from tests.toys.small_clip import small_clip

GOLDEN = Path(__file__).parents[1] / "golden"
WEIGHTS = GOLDEN / "longclip_tiny_weights.safetensors"


@pytest.fixture(scope="module")
def golden() -> dict[str, torch.Tensor]:
    return load_file(GOLDEN / "longclip_tiny_io.safetensors")


def check_golden(towers: torch.nn.Module, golden: dict[str, torch.Tensor]) -> None:
    with torch.inference_mode():
        assert (towers.encode_image(golden["image"]) - golden["image_features"]).abs().max() < 1e-5
        assert (towers.encode_text(golden["text_ids"]) - golden["text_features"]).abs().max() < 1e-5


def test_long_clip_matches_the_original_implementation(golden: dict[str, torch.Tensor]) -> None:
    towers = load_clip(WEIGHTS)
    check_golden(towers, golden)
    assert (towers.embed_dim, towers.context_length, towers.image_size) == (32, 248, 32)
    assert not towers.training


def test_a_pt_file_a_folder_and_a_hub_name(tmp_path: Path, hub: LoopbackHub, golden: dict[str, torch.Tensor]) -> None:
    torch.save(load_file(WEIGHTS), tmp_path / "longclip-L.pt")
    hub.add_repo("BeichenZhang/LongCLIP-L", {"longclip-L.pt": tmp_path / "longclip-L.pt"})
    for source in (tmp_path / "longclip-L.pt", str(tmp_path), "BeichenZhang/LongCLIP-L"):
        check_golden(load_clip(source), golden)


def test_head_width_is_64_unless_the_file_says_otherwise(tmp_path: Path, golden: dict[str, torch.Tensor]) -> None:
    tensors = load_file(WEIGHTS)
    save_file(tensors, tmp_path / "two.safetensors", metadata={"vision_heads": "2", "text_heads": "2"})
    two = load_clip(tmp_path / "two.safetensors")
    assert two.clip.visual.transformer.resblocks[0].attn.num_heads == 2
    assert load_clip(WEIGHTS).clip.transformer.resblocks[0].attn.num_heads == 1
    with torch.inference_mode():
        assert (two.encode_image(golden["image"]) - golden["image_features"]).abs().max() > 1e-3


def test_one_or_two_position_tables(tmp_path: Path, golden: dict[str, torch.Tensor]) -> None:
    tensors = load_file(WEIGHTS)
    tensors["positional_embedding"][20:] = 7
    tensors["positional_embedding_res"][:20] = -7
    save_file(tensors, tmp_path / "changed.safetensors")
    check_golden(load_clip(tmp_path / "changed.safetensors"), golden)
    del tensors["positional_embedding_res"]  # a plain CLIP
    save_file(tensors, tmp_path / "clip.safetensors")
    towers = load_clip(tmp_path / "clip.safetensors", activation="quick_gelu")
    assert torch.equal(towers.clip.positional_embedding, tensors["positional_embedding"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("text_projection"), "not a CLIP as OpenAI and Long-CLIP publish theirs"),
        (lambda tensors: tensors.update(positional_embedding_res=torch.zeros(20, 64)), "differ"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path: Path, change: object, message: str) -> None:
    tensors = load_file(WEIGHTS)
    change(tensors)  # type: ignore[operator]
    save_file(tensors, tmp_path / "broken.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load_clip(tmp_path / "broken.safetensors")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("empty", "exactly one weight file, but it holds: none"),
        ("two", r"a\.pt, b\.pt"),
        ("local-dir:absent", "folder .absent. does not exist"),
        ("owner/absent", "owner/absent"),
        ("BeichenZhang/LongCLIP-B", "the Hub refuses BeichenZhang/LongCLIP-B"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_no_or_several_weights_are_told(
    source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("two").mkdir()
    for name in ("a.pt", "b.pt"):
        torch.save({}, Path("two", name))
    with pytest.raises(CheckpointError, match=message):
        load_clip(f"./{source}" if Path(source).is_dir() else source)


def save_clip(folder: Path, model_cfg: dict[str, Any], model: Any = open_clip.CLIP, **preprocess: Any) -> Any:
    """Saves a model with random weights in open_clip's layout."""
    torch.manual_seed(3)
    clip = model(**{key: value for key, value in model_cfg.items() if key != "custom_text"})
    save_file(clip.state_dict(), folder / "open_clip_model.safetensors")
    config = {"model_cfg": model_cfg, "preprocess_cfg": preprocess}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return clip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model in open_clip's layout."""
    folder = tmp_path_factory.mktemp("open_clip")
    model_cfg = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "patch_size": 16, "width": 32, "layers": 1, "head_width": 16},
        "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    }
    save_clip(folder, model_cfg, mean=[0.1, 0.2, 0.3], std=[0.5, 0.5, 0.5])
    return folder


@pytest.mark.slow
def test_open_clip_folders_and_hub_models(folder: Path, hub: LoopbackHub) -> None:
    hub.add_folder("owner/clip", folder)
    reference = open_clip.create_model(f"local-dir:{folder}")
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for source in (folder, f"local-dir:{folder}", "hf-hub:owner/clip", "owner/clip"):
        towers = load_clip(source)
        ids, _ = towers.tokenize(["A red star.", "Nothing"])
        with torch.inference_mode():
            assert torch.allclose(towers.encode_image(pixels), reference.encode_image(pixels), atol=1e-6)
            assert torch.allclose(towers.encode_text(ids), reference.encode_text(ids), atol=1e-6)
        assert (towers.embed_dim, towers.context_length, towers.image_size) == (16, 24, 32)
        red = towers.preprocess(Image.new("RGB", (50, 40), (255, 0, 0)))
        assert red.shape == (3, 32, 32)
        assert red[:, 5, 5].tolist() == [255, 0, 0]
        found = normalized(red[None], towers.mean, towers.std)  # type: ignore[attr-defined]
        assert found[0, :, 5, 5].tolist() == pytest.approx([(1 - 0.1) / 0.5, -0.2 / 0.5, -0.3 / 0.5])


def test_open_clip_never_falls_back_to_random_weights(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "open_clip_config.json", tmp_path)
    with pytest.raises(CheckpointError, match="cannot load the open_clip model"):
        load_clip(tmp_path)


def test_tokens_are_those_of_open_clip_but_for_control_strings(folder: Path) -> None:
    towers = load_clip(folder)
    text = "It's a RED star,  with 12 points & a  hat!"
    ids, cut = towers.tokenize([text])
    assert torch.equal(ids, open_clip.get_tokenizer(f"local-dir:{folder}")([text]))
    assert cut == [False]
    ids, _ = towers.tokenize(["a <end_of_text> b <start_of_text>", "a <END_OF_TEXT> b"])
    assert [(ids == control).sum(1).tolist() for control in (49406, 49407)] == [[1, 1], [1, 1]]
    escaped, _ = towers.tokenize(["a <fin_of_text> b"])
    plain, _ = towers.tokenize(["a <end_of_text> b"])
    assert (plain != 0).sum() == (escaped != 0).sum()


def test_long_texts_are_cut_keep_their_end_token_and_cost_bounded_time(folder: Path) -> None:
    towers = load_clip(folder)
    ids, cut = towers.tokenize(["star " * 22, "star " * 23, "q" * 100_000, " " * 100_000 + "star"])
    assert ids.shape == (4, 24)
    assert cut == [False, True, True, False]
    assert (ids == 49407).sum(1).tolist() == [1, 1, 1, 1]
    assert ids[1, -1] == 49407


@pytest.mark.parametrize("pooling", [{}, {"pool_type": "eos", "eos_id": 3}])
def test_leaving_out_what_is_behind_the_end_token_changes_nothing(pooling: dict[str, object], tmp_path: Path) -> None:
    model_cfg = clip_architecture()["model_cfg"]
    model_cfg["text_cfg"].update(pooling)
    save_clip(tmp_path, model_cfg)
    towers = load_clip(tmp_path)
    end = 3 if pooling else model_cfg["text_cfg"]["vocab_size"] - 1
    ids = torch.zeros(3, 40, dtype=torch.long)
    for row, length in enumerate((2, 9, 17)):
        ids[row, :length] = torch.arange(10, 10 + length)
        ids[row, length] = end
    with torch.inference_mode():
        assert torch.allclose(towers.encode_text(ids), towers.clip.encode_text(ids), atol=1e-6)


def test_other_tokenizers_and_text_towers(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    model_cfg = clip_architecture()["model_cfg"]
    model_cfg["custom_text"] = True
    model_cfg["text_cfg"].update(hf_tokenizer_name="owner/tokenizer", no_causal_mask=True, pool_type="first")
    clip = save_clip(tmp_path, model_cfg, open_clip.CustomTextCLIP)
    towers = load_clip(tmp_path)
    ids, cut = towers.tokenize(["The red <end> star.", "The red star. " * 20])
    assert ids.shape == (2, 40)
    assert cut == [False, True]
    assert len(tokenizer) - 1 not in ids
    with torch.inference_mode():
        assert torch.allclose(towers.encode_text(ids), clip.eval().encode_text(ids), atol=1e-6)


def test_the_activation_is_told_or_asked_for_and_never_guessed(tmp_path: Path) -> None:
    """Weights of both activations have the same names, and with the wrong one every score is wrong."""
    tower: dict[str, Any] = {"width": 16, "layers": 1}
    sizes = {
        "embed_dim": 8,
        "vision_cfg": {"image_size": 32, "patch_size": 16, "head_width": 16, **tower},
        "text_cfg": {"context_length": 20, "vocab_size": 100, "heads": 1, **tower},
    }
    pixels, file = torch.rand(2, 3, 32, 32), tmp_path / "mine.pt"
    for activation in ("gelu", "quick_gelu"):
        clip = open_clip.CLIP(**sizes, quick_gelu=activation == "quick_gelu").eval()
        torch.save(clip.state_dict(), file)
        with pytest.raises(CheckpointError, match="does not say with which activation"):
            load_clip(file)
        told = load_clip(file, activation=activation)
        config = {
            "model_cfg": {**sizes, "quick_gelu": activation == "quick_gelu"},
            "preprocess_cfg": {"mean": [0, 0, 0]},
        }
        (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
        beside = load_clip(file)
        (tmp_path / "open_clip_config.json").unlink()
        with torch.inference_mode():
            for towers in (told, beside):
                assert torch.allclose(towers.encode_image(pixels), clip.encode_image(pixels), atol=1e-6)
        assert beside.preprocess_cfg["mean"] == [0, 0, 0]
    with pytest.raises(ConfigError, match="activation must be one of quick_gelu, gelu, got 'relu'"):
        load_clip(file, activation="relu")


@pytest.mark.parametrize("name", ["hf-hub:other/tower", "hf_hub:other/tower", "local-dir:tower", "other/tower"])
def test_a_vision_tower_of_another_repository_is_refused(name: str, tmp_path: Path) -> None:
    folder = small_clip(tmp_path / "clip")
    path = folder / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["model_cfg"]["vision_cfg"]["timm_model_name"] = name
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=f"timm_model_name '{name}' names a network outside of the checkpoint"):
        load_clip(folder)
    with pytest.raises(CheckpointError, match="names a network outside of the checkpoint"):
        build_clip(config["model_cfg"])
    config["model_cfg"]["vision_cfg"] |= {"timm_model_name": "vit_tiny_patch16_224", "timm_model_pretrained": True}
    with pytest.raises(CheckpointError, match="timm_model_pretrained asks for weights outside"):
        build_clip(config["model_cfg"])
