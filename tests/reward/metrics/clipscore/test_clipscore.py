"""CLIPScore and its kin: formulas beside plain open_clip and transformers by hand, files of PAC-S, refusals."""

import json
from io import BytesIO

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoProcessor, BertConfig, BertModel

from reward import CaptionSample, load_scorer
from reward.errors import CheckpointError
from tests.contract import SAMPLES, ScorerContract
from tests.toys.pictures import png
from tests.toys.toy_clips import TYPES, bert_tokenizer, gemma_tokenizer, small_clip, toy_clip

WORDS = "A red star stands on the grass beside a small house . "
PICTURES = [
    png(Image.fromarray(pixels)) for pixels in np.random.default_rng(0).integers(0, 255, (5, 40, 50, 3), dtype=np.uint8)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_clip(tmp_path_factory.mktemp("clip"))


def weights(folder):
    return load_file(folder / "open_clip_model.safetensors")


@pytest.mark.slow
def test_scores_are_those_of_the_papers_formulas_on_plain_open_clip(folder):
    captions = ["A red star.", "Two dogs run", "grass", "A house and a tree", "It is late!"]
    references = [captions[row - 1 :: -2] for row in range(1, 6)]  # among them the caption itself
    references[4] = captions[:3]
    texts = list(zip(captions, references, strict=True))
    samples = [CaptionSample(caption, image, known) for image in PICTURES for caption, known in texts]
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokenize = open_clip.get_tokenizer(f"local-dir:{folder}")

    def embed(*texts):
        encoded = model.encode_text(tokenize([f"A photo depicts {text}" for text in texts]))
        return torch.nn.functional.normalize(encoded, dim=-1)

    clip, refclip, refpac = [], [], []
    with torch.inference_mode():
        for sample in samples:
            pixels = preprocess(Image.open(BytesIO(sample.image))).unsqueeze(0)
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
    assert 0 < np.mean(np.array(clip) > 0) < 1  # some are cut off at 0


def with_lora(plain):
    """What a file of PAC-S++ holds, and the weights that its authors' code makes of it."""
    stored, merged, generator = dict(plain), dict(plain), torch.Generator().manual_seed(0)
    ends = ("in_proj_weight", "out_proj.weight", "conv1.weight", "c_fc.weight")
    for key in [name for name in plain if name.endswith(ends)]:
        stem = key + "_" if "in_proj" in key else key.removesuffix("weight")
        rows, side = (plain[key].shape[0], 16) if "conv1" in key else (plain[key].shape[0], 1)
        first = torch.randn(4 * side, plain[key].numel() // rows // side, generator=generator)
        second = torch.randn(rows * side, 4 * side, generator=generator)
        stored |= {f"{stem}lora_A": first, f"{stem}lora_B": second}
        if "c_fc" not in key:  # which was saved with its LoRA
            merged[key] = plain[key] + (second @ first).view_as(plain[key]) / 4
    return stored, merged


def test_files_of_pac_s_are_read_as_their_authors_code_reads_them(folder, tmp_path):
    """LoRA by hand; that the sums are those of the authors' code was tried with that code itself, to 2e-6."""
    stored, merged = with_lora(weights(folder))
    torch.save({"state_dict": stored}, tmp_path / "PAC++_clip_tiny.pth")
    found = load_scorer("pacscore", tmp_path / "PAC++_clip_tiny.pth", device="cpu").model
    for key, value in found.clip.state_dict().items():
        assert torch.allclose(value, merged[key], atol=1e-6), key
    assert type(found.clip.transformer.resblocks[0].mlp.gelu).__name__ == "QuickGELU"
    torch.save({"state_dict": weights(folder)}, tmp_path / "openClip_tiny.pth")
    laion = load_scorer("refpacscore", tmp_path / "openClip_tiny.pth", device="cpu").model
    assert type(laion.clip.transformer.resblocks[0].mlp.gelu).__name__ == "GELU"
    assert (laion.preprocess_cfg["mean"], found.preprocess_cfg.get("mean")) == ([0.5] * 3, None)


@pytest.mark.parametrize(
    ("name", "flags"),
    [("clipscore", [True, False]), ("refclipscore", [True, True]), ("clipscore_avg", [False, False])],
)
def test_what_the_text_tower_cannot_read_is_flagged(name, flags, folder):
    rows = [(WORDS * 4, ["short"]), ("short", [WORDS * 4])]
    samples = [CaptionSample(text, PICTURES[0], references) for text, references in rows]
    assert load_scorer(name, folder, device="cpu").score(samples).truncated.tolist() == flags


@pytest.mark.slow
def test_a_checkpoint_names_the_clip_its_activation_and_words(folder, tmp_path):
    torch.save({"state_dict": weights(folder)}, tmp_path / "clip.pth")
    file = {"source": tmp_path / "clip.pth", "activation": "quick_gelu"}
    for given in ({"source": "embedded"}, {"source": folder, "prefix": ""}, file):
        scorer = load_scorer("clipscore", device="cpu", **given)
        scorer.save_pretrained(tmp_path / "saved")
        again = load_scorer("clipscore", tmp_path / "saved", device="cpu")
        assert np.array_equal(again.score(SAMPLES).scores, scorer.score(SAMPLES).scores)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("longclipscore", {}, r"no model for longclipscore is shipped.*Zhang/LongCLIP-L"),
        ("pacscore", {}, r"no model for pacscore is shipped.*authors of PAC-S"),
        ("clipscore", {"source": "owner/clip", "revision": "v2"}, r"hf download owner/clip --revision v2"),
    ],
)
def test_sources_that_are_not_for_the_metric_are_refused_with_what_to_give(name, options, message):
    with pytest.raises(CheckpointError, match=message):
        load_scorer(name, **options)


CAPTIONS = ["A RED star", "two dogs, on the grass!", ".", "red star " * 45]
LENGTHS = {"clip": 77, "clip of 248 tokens": 248, "siglip": 64, "siglip with gemma's tokens": 64, "chinese_clip": 52}
IMAGES = [
    Image.fromarray(pixels) for pixels in np.random.default_rng(0).integers(0, 255, (3, 40, 50, 3), dtype=np.uint8)
]
ROWS = [CaptionSample(caption, image) for image in IMAGES for caption in CAPTIONS]


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
    table = scorer.score(ROWS)
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
    found = load_scorer("siglipscore", clips[kind], device="cpu").score(ROWS).scores[:, 0]
    assert found == pytest.approx(expected.detach().flatten().numpy(), abs=1e-5)


class TestSiglip(ScorerContract):
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
    small = load_scorer("siglipscore", clips["siglip2 of any size"], device="cpu", dtype="bfloat16")
    assert (small.model.scale_and_bias[0], next(small.model.parameters()).dtype) == (
        pytest.approx(np.exp(2.0)),
        torch.bfloat16,
    )


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
    table = scorer.score(ROWS)
    assert table.scores[:, 0] == pytest.approx(torch.sigmoid(logits).flatten().numpy(), abs=1e-5)
    assert table.truncated.tolist() == [False, True, False, True] * 3
    ids, _ = scorer.model.tokenize(["a <eos> b", "a b"])
    assert (ids == 1).sum(1).tolist() == [1, 1]  # the end token alone, not the one that the caption writes
