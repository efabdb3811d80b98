"""CLIPScore and its kin: the formulas beside plain open_clip, PAC-S's files, checkpoints, and what is refused."""

from io import BytesIO

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from reward import CaptionSample, load_scorer
from reward.errors import CheckpointError
from tests.contract import SAMPLES, ScorerContract
from tests.toys.pictures import png
from tests.toys.small_clip import small_clip

WORDS = "A red star stands on the grass beside a small house . "
PICTURES = [
    png(Image.fromarray(pixels)) for pixels in np.random.default_rng(0).integers(0, 255, (5, 40, 50, 3), dtype=np.uint8)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A CLIP in open_clip's layout."""
    return small_clip(tmp_path_factory.mktemp("clip"))


def weights(folder):
    return load_file(folder / "open_clip_model.safetensors")


class TestClipScorer(ScorerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, folder):
        return load_scorer("clipscore", folder, device="cpu")


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
        ("longclipscore", {}, r"no longclipscore checkpoint is shipped.*Zhang/LongCLIP-L"),
        ("pacscore", {}, r"no pacscore checkpoint is shipped.*authors of PAC-S"),
        ("clipscore", {"source": "owner/clip", "revision": "v2"}, r"hf download owner/clip --revision v2"),
    ],
)
def test_sources_that_are_not_for_the_metric_are_refused_with_what_to_give(name, options, message):
    with pytest.raises(CheckpointError, match=message):
        load_scorer(name, **options)
