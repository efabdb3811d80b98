"""load_clip: Long-CLIP's original layout against golden outputs, open_clip folders and Hub models, refused weights."""

import json
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from safetensors.torch import load_file, save_file

from reward.backbones import load_clip
from reward.backbones.clip import OpenClipTowers, normalized
from reward.errors import CheckpointError, ConfigError, ImageError
from tests.reward.metrics.tiny_vela import clip_architecture
from tests.toys.toy_clips import small_clip, toy_clip

GOLDEN = Path(__file__).parents[1] / "golden"
WEIGHTS = GOLDEN / "longclip_tiny_weights.safetensors"
OUTPUTS = load_file(GOLDEN / "longclip_tiny_io.safetensors")
PIXELS = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def distance(towers):
    with torch.inference_mode():
        images = (towers.encode_image(OUTPUTS["image"]) - OUTPUTS["image_features"]).abs().max()
        return float(max(images, (towers.encode_text(OUTPUTS["text_ids"]) - OUTPUTS["text_features"]).abs().max()))


def test_long_clip_matches_the_original_implementation():
    towers = load_clip(WEIGHTS)
    assert distance(towers) < 1e-5
    assert (towers.embed_dim, towers.context_length, towers.image_size) == (32, 248, 32)
    assert not towers.training


@pytest.mark.parametrize("size", ["L", "L@336px"])
def test_a_pt_file_a_folder_and_a_hub_name(size, tmp_path, hub):
    file = tmp_path / f"longclip-{size}.pt"
    torch.save(load_file(WEIGHTS), file)
    repository = f"BeichenZhang/LongCLIP-{size.replace('@', '-')}"
    hub.add_repo(repository, {file.name: file, "README.md": b"# Long-CLIP"})
    for source in (file, str(tmp_path), repository):
        assert distance(load_clip(source)) < 1e-5


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no_projection.safetensors", "not a CLIP as OpenAI and Long-CLIP publish theirs"),
        ("two_lengths.safetensors", "differ"),
        ("./two", r"exactly one weight file, but it holds: a\.pt, b\.pt"),
        ("owner/neither", r"holds no open_clip_config\.json and no config\.json"),
        ("BeichenZhang/LongCLIP-B", "the Hub refuses BeichenZhang/LongCLIP-B"),
        ("ViT-B-32:nothing", r"ViT-B-32:nothing.*not a known tag"),
        ("ViT-B/32", "write ViT-B-32:openai"),
        ("no_weights", "cannot load the open_clip model"),
    ],
)
def test_what_is_no_clip_is_told(source, message, tmp_path, hub, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tensors = load_file(WEIGHTS)
    save_file({**tensors, "positional_embedding_res": torch.zeros(20, 64)}, "two_lengths.safetensors")
    save_file({key: value for key, value in tensors.items() if key != "text_projection"}, "no_projection.safetensors")
    for file in ("two/a.pt", "two/b.pt"):
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).touch()
    (small_clip(Path("no_weights")) / "open_clip_model.safetensors").unlink()
    hub.add_repo("owner/neither", {"README.md": tmp_path / "two" / "a.pt"})
    with pytest.raises(CheckpointError, match=message):
        load_clip(source)


def save_clip(folder, model_cfg, model=open_clip.CLIP, **preprocess):
    torch.manual_seed(3)
    clip = model(**{key: value for key, value in model_cfg.items() if key != "custom_text"})
    save_file(clip.state_dict(), folder / "open_clip_model.safetensors")
    config = {"model_cfg": model_cfg, "preprocess_cfg": preprocess}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return clip.eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small model in open_clip's layout, with OpenAI's tokens."""
    folder = tmp_path_factory.mktemp("open_clip")
    model_cfg = clip_architecture()["model_cfg"]
    model_cfg["text_cfg"] |= {"context_length": 24, "vocab_size": 49408}
    save_clip(folder, model_cfg, mean=[0.1, 0.2, 0.3], std=[0.5, 0.5, 0.5])
    return folder


@pytest.mark.slow
def test_open_clip_folders_and_hub_models(folder, hub):
    hub.add_folder("owner/clip", folder)
    reference = open_clip.create_model(f"local-dir:{folder}")
    for source in (folder, f"local-dir:{folder}", "hf-hub:owner/clip", "owner/clip"):
        towers = load_clip(source)
        ids, _ = towers.tokenize(["A red star.", "Nothing"])
        with torch.inference_mode():
            assert torch.allclose(towers.encode_image(PIXELS), reference.encode_image(PIXELS), atol=1e-6)
            assert torch.allclose(towers.encode_text(ids), reference.encode_text(ids), atol=1e-6)
        assert (towers.embed_dim, towers.context_length, towers.image_size) == (16, 24, 32)
        red = towers.preprocess(Image.new("RGB", (50, 40), (255, 0, 0)))
        assert red.shape == (3, 32, 32)
        found = normalized(red[None], towers.mean, towers.std)
        assert found[0, :, 5, 5].tolist() == pytest.approx([(1 - 0.1) / 0.5, -0.2 / 0.5, -0.3 / 0.5])


def test_an_image_too_thin_to_resize_is_an_error_of_the_image(folder):
    towers = load_clip(folder)
    with pytest.raises(ImageError, match="1 x 60000 pixels is too long and thin"):
        towers.preprocess(Image.new("RGB", (1, 60_000)))
    assert towers.preprocess(Image.new("RGB", (10, 4000))).shape == (3, 32, 32)
    # Where both sides are scaled, a thin image takes no more memory than another.
    squashing = OpenClipTowers(towers.clip, towers.tokenizer, {"resize_mode": "squash"})
    assert squashing.preprocess(Image.new("RGB", (1, 60_000))).shape == (3, 32, 32)


def test_tokens_are_those_of_open_clip_but_for_control_strings(folder):
    towers = load_clip(folder)
    text = "It's a RED star,  with 12 points & a  hat!"
    ids, cut = towers.tokenize([text])
    assert torch.equal(ids, open_clip.get_tokenizer(f"local-dir:{folder}")([text]))
    assert cut == [False]
    ids, _ = towers.tokenize(["a <end_of_text> b <start_of_text>", "a <END_OF_TEXT> b"])
    assert [(ids == control).sum(1).tolist() for control in (49406, 49407)] == [[1, 1], [1, 1]]


@pytest.mark.parametrize("pooling", [{}, {"pool_type": "eos", "eos_id": 3}])
def test_leaving_out_what_is_behind_the_end_token_changes_nothing(pooling, tmp_path):
    model_cfg = clip_architecture()["model_cfg"]
    model_cfg["text_cfg"].update(pooling)
    save_clip(tmp_path, model_cfg)
    towers = load_clip(tmp_path)
    end = 3 if pooling else model_cfg["text_cfg"]["vocab_size"] - 1
    ids = torch.zeros(3, 40, dtype=torch.long)
    for row, length in enumerate((2, 9, 17)):
        ids[row, : length + 1] = torch.tensor([*range(10, 10 + length), end])
    with torch.inference_mode():
        assert torch.allclose(towers.encode_text(ids), towers.clip.encode_text(ids), atol=1e-6)


@pytest.mark.parametrize("activation", ["gelu", "quick_gelu"])
def test_the_activation_is_told_or_asked_for_and_never_guessed(activation, tmp_path):
    """Weights of both activations have the same names, and with the wrong one every score is wrong."""
    model_cfg = {**clip_architecture()["model_cfg"], "quick_gelu": activation == "quick_gelu"}
    model_cfg["vision_cfg"]["head_width"], model_cfg["text_cfg"]["heads"] = 32, 1  # one head, as a file has by default
    clip, file = save_clip(tmp_path, model_cfg), tmp_path / "mine.pt"
    torch.save(clip.state_dict(), file)
    with torch.inference_mode():
        towers = load_clip(file, activation=activation)
        assert torch.allclose(towers.encode_image(PIXELS), clip.encode_image(PIXELS), atol=1e-6)
    with pytest.raises(CheckpointError, match=r"does not say with which activation.* for a command --set activation="):
        load_clip(file)
    with pytest.raises(ConfigError, match="activation must be one of quick_gelu, gelu, got 'relu'"):
        load_clip(file, activation="relu")


def test_an_architecture_with_a_tag_has_the_activation_of_its_weights(tmp_path, hub, monkeypatch):
    model_cfg = clip_architecture()["model_cfg"]
    clip = save_clip(tmp_path, {**model_cfg, "quick_gelu": True})
    hub.add_folder("owner/tiny", tmp_path)
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "RN50", model_cfg)
    tag = open_clip.pretrained._pcfg(hf_hub="owner/tiny/", quick_gelu=True)
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "RN50", {"openai": tag})
    with torch.inference_mode():
        assert torch.allclose(load_clip("RN50:openai").encode_image(PIXELS), clip.encode_image(PIXELS), atol=1e-6)


@pytest.mark.parametrize(
    ("vision", "message"),
    [
        ({"timm_model_name": "hf-hub:other/tower"}, "'hf-hub:other/tower' names a network outside of the checkpoint"),
        ({"timm_model_name": "other/tower"}, "'other/tower' names a network outside of the checkpoint"),
        ({"model_type": "timm_wrapper", "architecture": "hf-hub:other/tower"}, "hf-hub:other/tower"),
    ],
)
def test_a_vision_tower_of_another_repository_is_refused(vision, message, tmp_path, hub):
    if "timm_model_name" in vision:
        path = small_clip(tmp_path / "clip") / "open_clip_config.json"
        config = json.loads(path.read_text())
        config["model_cfg"]["vision_cfg"].update(vision)
    else:
        path = toy_clip(tmp_path / "clip", "vision-text-dual-encoder") / "config.json"
        config = {**json.loads(path.read_text()), "vision_config": vision}
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        load_clip(path.parent)
    assert hub.requests == []


@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
def test_pixels_are_those_of_open_clip(mode, folder):
    towers = load_clip(folder)
    towers = OpenClipTowers(towers.clip, towers.tokenizer, {**towers.preprocess_cfg, "resize_mode": mode})
    transform = image_transform_v2(PreprocessCfg(**towers.preprocess_cfg), is_train=False)
    for height, width in ((1, 40), (33, 20), (32, 32), (31, 64)):
        values = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
        image = Image.fromarray(values)
        pixels = normalized(towers.preprocess(image)[None], towers.mean, towers.std)
        assert pixels.is_contiguous()
        assert torch.equal(pixels[0], transform(image))
