"""embedscore: its scores are the library's own cosines, and nothing that a folder names is run."""

import shutil
from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image

from reward import CaptionSample, MetricReward, load_scorer
from reward.errors import CheckpointError
from reward.metrics.embedscore.scorer import EmbedScorer
from reward.registry import metric_of
from tests.contract import ScorerContract
from tests.toys import toy_judges
from tests.toys.toy_clips import toy_clip

library = pytest.importorskip("sentence_transformers", minversion="6")
from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.base.modules import Normalize, Transformer  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: E402

CAPTIONS = ("a red star .", "a red star on the grass .", "a small house")
SAMPLES = [CaptionSample(caption, image) for image, caption in product(toy_judges.pictures(2), CAPTIONS)]


def chat(folder):
    """The last state of a vision-language model, with a prompt, as Qwen3-VL-Embedding."""
    model, processor = toy_judges.qwen2_vl()
    for part in (model, processor):
        part.save_pretrained(folder / "made")
    modules = [Transformer(str(folder / "made")), Pooling(32, "lasttoken"), Normalize()]
    prompts = {"prompts": {"all": "Represent the input."}, "default_prompt_name": "all"}
    SentenceTransformer(modules=modules, device="cpu", **prompts).save_pretrained(str(folder))
    return folder


def towers(folder):
    """A CLIP, whose embeddings are not normalised."""
    made = toy_clip(folder / "made")
    SentenceTransformer(modules=[Transformer(str(made))], device="cpu", truncate_dim=12).save_pretrained(str(folder))
    return folder


KINDS = {make.__name__: make for make in (chat, towers)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {kind: make(root / kind) for kind, make in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_cosines_of_the_librarys_encode(kind, folders):
    scorer = load_scorer("embedscore", folders[kind], device="cpu")
    plain = SentenceTransformer(str(folders[kind]), device="cpu")
    for prompt, batch_size in ((None, None), ("Look: ", 4)):
        if prompt is not None and kind == "towers":  # a CLIP is told nothing about an image
            continue
        scorer.prompt = prompt
        images = plain.encode([sample.image for sample in SAMPLES], prompt=prompt)
        texts = plain.encode([sample.candidate for sample in SAMPLES], prompt=prompt)
        expected = plain.similarity_pairwise(images, texts).numpy()
        assert len(np.unique(expected.round(4))) == 6
        assert scorer.score(SAMPLES, batch_size=batch_size).scores[:, 0] == pytest.approx(expected, abs=1e-6)


class TestContract(ScorerContract):
    @pytest.fixture(scope="class", params=KINDS)
    @classmethod
    def scorer(cls, request, folders):
        return EmbedScorer.from_pretrained(folders[request.param], device="cpu", max_characters=300)


def test_a_folder_needs_no_name_and_each_image_is_embedded_once(folders, monkeypatch):
    assert {metric_of(folder) for folder in folders.values()} == {"embedscore"}
    reward = MetricReward(folders["chat"], device="cpu").load()
    images = []
    encode = SentenceTransformer.encode

    def counted(self, inputs, **options):
        images.extend(value for value in inputs if isinstance(value, Image.Image))
        return encode(self, inputs, **options)

    monkeypatch.setattr(SentenceTransformer, "encode", counted)
    reward.rewards(SAMPLES)
    assert len(images) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_captions_that_name_files_are_read_as_text_and_long_ones_are_flagged(kind, folders, tmp_path):
    image = SAMPLES[0].image
    image.save(tmp_path / "a.png")
    scorer = load_scorer("embedscore", folders[kind], device="cpu")
    captions = [str(tmp_path / "a.png"), "http://127.0.0.1:9/a.png"]
    table = scorer.score([CaptionSample(caption, image) for caption in captions])
    assert not table.errors
    assert table.scores.max() < 0.99
    limit = scorer.model.max_seq_length = 77
    room = limit - scorer.model.preprocess(["a"], prompt=scorer.model.prompts.get("all"))["input_ids"].shape[1]
    fits, cut = "a " * (room // 2), "a " * (room + 2)
    assert scorer.score([CaptionSample(caption, image) for caption in (fits, cut)]).truncated.tolist() == [False, True]


def test_an_image_that_the_model_refuses_costs_no_other_row(folders):
    thin = CaptionSample("a star", Image.new("RGB", (1000, 2)))
    scorer = load_scorer("embedscore", folders["chat"], device="cpu")
    table = scorer.score([SAMPLES[0], thin, SAMPLES[3]])
    assert table.scores[[0, 2]] == pytest.approx(scorer.score([SAMPLES[0], SAMPLES[3]]).scores, abs=1e-6)
    assert list(table.errors) == [1]
    assert "the model: absolute aspect ratio" in table.errors[1]


def test_modules_of_a_hub_id_are_fetched_with_it(folders, tmp_path, hub):
    hub.add_folder("org/embeds", shutil.copytree(folders["chat"], tmp_path / "copy", ignore=lambda *_: ["made"]))
    here = load_scorer("embedscore", folders["chat"], device="cpu").score(SAMPLES).scores
    assert MetricReward("org/embeds", device="cpu").score(SAMPLES).scores == pytest.approx(here)


def _of_texts(folder):
    from tests.reward.metrics.test_crossencoder import text_classes

    text_classes(folder / "made")
    modules = [Transformer(str(folder / "made")), Pooling(32)]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))


def _own_code(folder):
    chat(folder)
    file = folder / "modules.json"
    file.write_text(file.read_text().replace(Normalize.__module__ + ".Normalize", "code.Normalize"))


def _no_modules(folder):
    chat(folder)
    (folder / "modules.json").unlink()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_of_texts, "embeds images and texts; this one embeds text"),
        (_own_code, "asks for the module 'code.Normalize', which is not run.*EmbedScorer"),
        (_no_modules, "has no modules.json of sentence-transformers, which says how it embeds"),
    ],
)
def test_what_cannot_embed_both_or_needs_code_is_refused(make, message, tmp_path):
    torch.manual_seed(0)
    make(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        load_scorer("embedscore", tmp_path, device="cpu")
