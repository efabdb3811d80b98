"""CLIPs of transformers behind clipscore and siglipscore: beside transformers and open_clip by hand; refusals."""

import json

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import AutoModel, AutoProcessor, BertConfig, BertModel

from reward import CaptionSample, load_scorer
from reward.errors import CheckpointError
from tests.contract import ScorerContract
from tests.toys.small_clip import small_clip
from tests.toys.toy_clips import TYPES, bert_tokenizer, gemma_tokenizer, toy_clip

CAPTIONS = ["A RED star", "two dogs, on the grass!", ".", "red star " * 45]
LENGTHS = {"clip": 77, "clip of 248 tokens": 248, "siglip": 64, "siglip with gemma's tokens": 64, "chinese_clip": 52}
IMAGES = [
    Image.fromarray(pixels) for pixels in np.random.default_rng(0).integers(0, 255, (3, 40, 50, 3), dtype=np.uint8)
]
SAMPLES = [CaptionSample(caption, image) for image in IMAGES for caption in CAPTIONS]


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    root = tmp_path_factory.mktemp("clips")
    return {kind: toy_clip(root / str(number), kind) for number, kind in enumerate(TYPES)}


def by_hand(folder, texts, length):
    """Cosines (images, texts) as transformers' own pages compute them, with `AutoProcessor`; and the model."""
    model, processor = AutoModel.from_pretrained(folder).eval(), AutoProcessor.from_pretrained(folder)
    if processor.tokenizer.init_kwargs.get("do_lower_case"):  # SigLIP 2, whose tokenizer forgets to
        texts = [text.lower() for text in texts]
    words = processor(text=texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt")
    with torch.inference_mode():
        image = model.get_image_features(**processor(images=IMAGES, return_tensors="pt")).pooler_output
        text = model.get_text_features(**words).pooler_output
    units = [torch.nn.functional.normalize(each[:, 0] if each.ndim == 3 else each, dim=-1) for each in (image, text)]
    return units[0] @ units[1].T, model


@pytest.mark.parametrize("kind", TYPES)
def test_scores_are_those_of_transformers_by_hand(kind, clips, caplog):
    scorer = load_scorer("clipscore", clips[kind], device="cpu")
    length = scorer.model.context_length
    cosines, model = by_hand(clips[kind], [f"A photo depicts {text}" for text in CAPTIONS], length)
    if cosines.mean() < 0:  # where all scores would be 0
        encode, cosines = scorer.model.encode_text, -cosines
        scorer.model.encode_text = lambda ids: -encode(ids)
    table = scorer.score(SAMPLES)
    assert table.scores[:, 0] == pytest.approx(2.5 * cosines.clamp(min=0).flatten().numpy(), abs=1e-5)
    assert np.ptp(table.scores) > 0.01
    assert length == LENGTHS.get(kind, length)
    assert table.truncated.tolist() == [False, False, False, length < 90] * 3
    if getattr(model, "logit_bias", None) is None:
        with pytest.raises(CheckpointError, match="no logit_bias, which siglipscore needs: take clipscore, or give"):
            load_scorer("siglipscore", clips[kind])
        return
    assert "is a SigLIP, whose cosines are near 0 or below: siglipscore is its own score" in caplog.text
    cosines, model = by_hand(clips[kind], CAPTIONS, length)
    expected = torch.sigmoid(cosines * model.logit_scale.exp() + model.logit_bias)
    found = load_scorer("siglipscore", clips[kind], device="cpu").score(SAMPLES).scores[:, 0]
    assert found == pytest.approx(expected.detach().flatten().numpy(), abs=1e-5)


class TestSiglip(ScorerContract):
    """The contract, on a SigLIP 2 that reads images of any size."""

    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, clips):
        return load_scorer("siglipscore", clips["siglip2 of any size"], device="cpu")


@pytest.mark.slow
def test_control_tokens_in_a_caption_are_text(clips):
    for kind, folder in clips.items():
        towers = load_scorer("clipscore", folder, device="cpu").model
        ids, _ = towers.tokenize(["a </s> <|endoftext|> [SEP] <eos> b", "a b"])
        ends = [sum(row.count(end) for end in set(towers.tokens.end) - {towers.tokens.pad}) for row in ids.tolist()]
        assert ends[0] == ends[1], kind
        if towers.tokens.pad in towers.tokens.end:
            assert towers.tokens.mask(ids)[0].sum() > 10, kind


def test_half_precision_files_and_a_type_on_request(clips, tmp_path):
    stored = load_scorer("clipscore", toy_clip(tmp_path / "half", dtype=torch.float16), device="cpu")
    assert next(stored.model.parameters()).dtype is torch.float32
    expected = load_scorer("clipscore", clips["clip"], device="cpu").score(SAMPLES).scores
    assert stored.score(SAMPLES).scores == pytest.approx(expected, abs=0.01)
    siglip = clips["siglip2 of any size"]
    small = load_scorer("siglipscore", siglip, device="cpu", dtype="bfloat16")
    assert (small.scale, next(small.model.parameters()).dtype) == (pytest.approx(np.exp(2.0)), torch.bfloat16)
    exact = load_scorer("siglipscore", siglip, device="cpu").score(SAMPLES).scores
    assert small.score(SAMPLES).scores == pytest.approx(exact, abs=0.05)


def test_of_a_folder_with_both_layouts_open_clips_is_read(tmp_path):
    both = load_scorer("clipscore", small_clip(toy_clip(tmp_path)))
    assert isinstance(both.model.clip, open_clip.CLIP)


def _drop(name):
    return lambda folder: (folder / name).unlink()


def _text_model(folder):
    sizes = {"hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1}
    BertModel(BertConfig(vocab_size=30, **sizes)).save_pretrained(folder)
    bert_tokenizer().save_pretrained(folder)


def _own_code(folder):
    config = json.loads((folder / "config.json").read_text())
    changed = {**config, "model_type": "jina_clip", "auto_map": {"AutoModel": "a.B"}}
    (folder / "config.json").write_text(json.dumps(changed))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop("model.safetensors"), r"cannot be read: .*no file named model\.safetensors"),
        (_drop("processor_config.json"), r"processor \(tokenizer\*\.json, .* Can't load image processor"),
        (_drop("tokenizer.json"), r"its tokenizer knows no letter: is tokenizer\.json beside the weights\?"),
        (_text_model, "is a 'bert', which does not embed both images and captions; take a CLIP or a SigLIP, such as"),
        (_own_code, "'jina_clip', which runs code of its own"),
    ],
)
def test_a_folder_that_is_no_whole_clip_is_refused(change, message, tmp_path):
    change(toy_clip(tmp_path))
    with pytest.raises(CheckpointError, match=message):
        load_scorer("clipscore", tmp_path)


def test_siglip_of_timm_by_open_clip(tmp_path):
    text = {"context_length": 16, "vocab_size": 80, "width": 16, "heads": 2, "layers": 1, "hf_tokenizer_name": "timm/x"}
    pooled = {"no_causal_mask": True, "pool_type": "last", "tokenizer_kwargs": {"clean": "canonicalize"}}
    vision = {"image_size": 32, "timm_model_name": "test_vit", "timm_pool": "map", "timm_proj": "none"}
    sizes = {"embed_dim": 64, "init_logit_scale": 2.0, "init_logit_bias": -1, "vision_cfg": vision}
    config = {**sizes, "text_cfg": {**text, **pooled}}
    model = open_clip.CustomTextCLIP(**config).eval()
    save_file(model.state_dict(), tmp_path / "open_clip_model.safetensors")
    preprocess = {"mean": [0.5] * 3, "std": [0.5] * 3, "resize_mode": "squash"}
    stated = {"model_cfg": {**config, "custom_text": True}, "preprocess_cfg": preprocess}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(stated))
    gemma_tokenizer().save_pretrained(tmp_path)
    source = f"local-dir:{tmp_path}"
    transform, tokenize = open_clip.create_model_from_pretrained(source)[1], open_clip.get_tokenizer(source)
    with torch.inference_mode():
        logits, _ = model.get_logits(torch.stack([transform(image) for image in IMAGES]), tokenize(CAPTIONS))
    scorer = load_scorer("siglipscore", tmp_path, device="cpu")
    table = scorer.score(SAMPLES)
    assert table.scores[:, 0] == pytest.approx(torch.sigmoid(logits).flatten().numpy(), abs=1e-5)
    assert table.truncated.tolist() == [False, True, False, True] * 3
    ids, _ = scorer.model.tokenize(["a <eos> b", "a b"])
    assert (ids == 1).sum(1).tolist() == [1, 1]  # the end token alone, not the one that the caption writes
