"""crossencoder: its scores are those of the library's own `predict`, and nothing that a folder names is run."""

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf
from PIL import Image
from safetensors.torch import load_file, save_file

from reward import CaptionSample, MetricReward, load_scorer
from reward.errors import CheckpointError, ConfigError, MissingExtraError
from reward.metrics.crossencoder.scorer import CrossEncoderScorer
from reward.registry import metric_of
from tests.contract import ScorerContract
from tests.toys import toy_judges
from tests.toys.toy_clips import bert_tokenizer

library = pytest.importorskip("sentence_transformers", minversion="6")
from sentence_transformers import CrossEncoder  # noqa: E402
from sentence_transformers.base.modules import Dense, Transformer  # noqa: E402
from sentence_transformers.cross_encoder.modules import LogitScore  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: E402

YES_NO = [("y", "e"), ("ye", "s"), ("n", "o")]
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
REFERENCES = [["a star", "the red star on grass"], ["a small house"]]
SAMPLES = [
    CaptionSample(caption, image, references)
    for image, references in zip(toy_judges.pictures(2), REFERENCES, strict=True)
    for caption in ("a red star .", "a red star on the grass .", "a small house")
]


def _write(folder, model, *parts):
    for part in (model, *parts):
        part.save_pretrained(folder)
    return folder


def _random(model):
    torch.manual_seed(0)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def log_odds(folder):
    """A vision-language model that says yes or no, as Qwen3-VL-Reranker."""
    tokens = toy_judges.byte_tokenizer("<image>", merges=YES_NO)
    made = _write(folder / "made", *toy_judges.llava(tokens=tokens))
    kwargs = {"chat_template": {"add_generation_prompt": True}}
    modules = [Transformer(str(made), transformer_task="any-to-any", processing_kwargs=kwargs)]
    modules.append(LogitScore(*tokens.convert_tokens_to_ids(["yes", "no"])))
    prompts = {"prompts": {"find": "Find a caption."}, "default_prompt_name": "find"}
    return _write(folder, CrossEncoder(modules=modules, device="cpu", activation_fn=torch.nn.Sigmoid(), **prompts))


def scores_layer(folder):
    """A vision-language model, its last state, and a layer of its own."""
    made = _write(folder / "made", *toy_judges.qwen2_vl())
    layer = Dense(32, 1, activation_function=torch.nn.Identity(), module_output_name="scores")
    modules = [Transformer(str(made)), Pooling(32, "lasttoken"), layer]
    return _write(folder, CrossEncoder(modules=modules, device="cpu", activation_fn=torch.nn.Identity()))


def text_classes(folder, labels=1):
    """A reranker of texts, as transformers saves it."""
    tokens = bert_tokenizer(24)
    config = tf.BertConfig(vocab_size=len(tokens), max_position_embeddings=24, num_labels=labels, **SIZES)
    return _write(folder, _random(tf.BertForSequenceClassification(config)), tokens)


def text_log_odds(folder):
    """A reranker of texts that says yes or no, as Qwen3-Reranker."""
    tokens = toy_judges.byte_tokenizer(merges=YES_NO)
    tokens.chat_template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    config = tf.Qwen2Config(vocab_size=len(tokens), num_key_value_heads=2, **SIZES)
    return _write(folder, _random(tf.Qwen2ForCausalLM(config)), tokens)


KINDS = {each.__name__: each for each in (log_odds, scores_layer, text_classes, text_log_odds)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {kind: make(root / kind) for kind, make in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_librarys_predict(kind, folders):
    scorer = load_scorer("crossencoder", folders[kind], device="cpu")
    own = CrossEncoder(str(folders[kind]), device="cpu")
    takes_images = "image" in own.modalities
    assert (scorer.spec.needs_image, scorer.spec.needs_references) == (takes_images, not takes_images)
    assert scorer.spec.range == ((0, 1) if isinstance(own.activation_fn, torch.nn.Sigmoid) else (-np.inf, np.inf))
    for prompt, batch_size in ((None, 16), ("Look: ", 4)):
        options = {"prompt": prompt, "batch_size": batch_size}
        if takes_images:
            expected = own.predict([(each.image, each.candidate) for each in SAMPLES], **options)
        else:  # the best of the references counts
            pairs = [[(reference, each.candidate) for reference in each.references] for each in SAMPLES]
            expected = np.array([own.predict(some, **options).max() for some in pairs])
        scorer.prompt = prompt
        assert scorer.score(SAMPLES, batch_size=batch_size).scores[:, 0] == pytest.approx(expected, abs=1e-6)
    assert scorer.fingerprint == load_scorer("crossencoder", folders[kind], device="cpu", prompt="Look: ").fingerprint


class TestContract(ScorerContract):
    @pytest.fixture(scope="class", params=["log_odds", "text_classes"])
    @classmethod
    def scorer(cls, request, folders):
        return CrossEncoderScorer.from_pretrained(folders[request.param], device="cpu", max_characters=300)


def test_a_folder_needs_no_name_and_its_activation_can_be_chosen(folders):
    folder = folders["log_odds"]
    assert {metric_of(folder), metric_of(folders["text_classes"])} == {"crossencoder"}
    share = MetricReward(folder, device="cpu").score(SAMPLES).scores
    bare = load_scorer("crossencoder", folder, device="cpu", activation="none")
    assert bare.spec.range == (-np.inf, np.inf)
    assert 1 / (1 + np.exp(-bare.score(SAMPLES).scores)) == pytest.approx(share, abs=1e-6)
    with pytest.raises(ConfigError, match="activation must be one of sigmoid, none, got 'tanh'"):
        load_scorer("crossencoder", folder, device="cpu", activation="tanh")


def test_modules_of_a_hub_id_are_fetched_with_it(folders, tmp_path, hub):
    folder = folders["scores_layer"]
    hub.add_folder("org/reranker", shutil.copytree(folder, tmp_path / "copy", ignore=lambda *_: ["made"]))
    here = load_scorer("crossencoder", folder, device="cpu").score(SAMPLES).scores
    assert MetricReward("org/reranker", device="cpu").score(SAMPLES).scores == pytest.approx(here)


def test_a_caption_that_names_a_file_is_read_as_text_and_a_long_one_is_flagged(folders, tmp_path):
    """The library opens texts that look like images, and would fetch them from the network."""
    toy_judges.pictures(1)[0].save(tmp_path / "a.png")
    samples = [CaptionSample(text, SAMPLES[0].image) for text in (str(tmp_path / "a.png"), "http://127.0.0.1:9/a.png")]
    assert not load_scorer("crossencoder", folders["log_odds"], device="cpu").score(samples).errors
    long = [CaptionSample("a star " * count, None, ["a red star ."]) for count in (2, 40)]
    texts = load_scorer("crossencoder", folders["text_classes"], device="cpu")
    assert texts.score(long).truncated.tolist() == [False, True]


def test_an_image_that_the_model_refuses_costs_no_other_row(folders):
    thin = CaptionSample("a star", Image.new("RGB", (1000, 2)))
    scorer = load_scorer("crossencoder", folders["scores_layer"], device="cpu")
    table = scorer.score([SAMPLES[0], thin, SAMPLES[3]])
    assert table.scores[[0, 2]] == pytest.approx(scorer.score([SAMPLES[0], SAMPLES[3]]).scores)
    assert list(table.errors) == [1]
    assert "the model: absolute aspect ratio" in table.errors[1]


class _Runs:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def change(folder, files):
    """Sets values in JSON files of the folder, or in the last module that modules.json lists; beside them lies code."""
    (folder / "code.py").write_text("import os\nos.mkdir('ran')\nclass C: pass\n")
    for name, values in files.items():
        file = folder / name
        content = json.loads(file.read_text()) if file.exists() else {}
        (content[-1] if isinstance(content, list) else content).update(values)
        file.write_text(json.dumps(content))


MODULES, SETTINGS, MODULE = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
OWN = {"model_type": "own", "auto_map": {"AutoConfig": "code.C", "AutoModelForMultimodalLM": "code.C"}}
METHOD = {"image": {"method": "init_weights", "method_output_name": None}}


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        (MODULES, {"type": "code.C"}, "asks for the module 'code.C', which is not run"),
        (MODULES, {"type": "sentence_transformers.base.model.torch.load"}, "which is not run"),
        (MODULES, {"path": "../elsewhere"}, "leaves its folder"),
        (SETTINGS, {"activation_fn": "torch.cuda.init"}, "activation 'torch.cuda.init'"),
        (SETTINGS, {"activation_fn": "os.abort"}, "activation='sigmoid' or 'none'"),
        (MODULE, {"tokenizer_name_or_path": "some/other"}, "tokenizer_name_or_path='some/oth"),
        (MODULE, {"modality_config": METHOD}, "asks for the methods init_weights; called are only forward, "),
        (MODULE, {"activation_function": "torch.utils.data.Sampler"}, "activation .* which is not of torch.nn"),
        ("config.json", OWN, "wants to run code of its own"),
        ("config.json", {"_attn_implementation": "a/b"}, "which is code from the Hub"),
        ("adapter_config.json", {}, "holds adapters: merge them"),
    ],
)
def test_nothing_that_a_folder_names_is_run(file, values, message, folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change(shutil.copytree(folders["log_odds"], tmp_path / "model"), {file: values})
    with pytest.raises(CheckpointError, match=message):
        load_scorer("crossencoder", "model", device="cpu")
    assert not (tmp_path / "ran").exists()


def test_weights_are_whole_and_no_pickle(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(folders["log_odds"], tmp_path / "model"))
    tensors = load_file(folder / "model.safetensors")
    kept = {key: value for key, value in tensors.items() if "mlp.up" not in key}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match="lacks 2 weights"):
        load_scorer("crossencoder", folder, device="cpu")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": _Runs()}))
    change(folder, {MODULE: {"model_kwargs": {"weights_only": False}}})
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_scorer("crossencoder", folder, device="cpu")
    assert not (tmp_path / "ran").exists()


def without_head(folder):
    modules = json.loads((folder / MODULES).read_text())
    (folder / MODULES).write_text(json.dumps(modules[:-1]))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("log_odds", without_head, r"leads to no head \(it lists Transformer\): a LogitScore"),
        ("scores_layer", without_head, r"leads to no head \(it lists Transformer, Pooling\)"),
        ("log_odds", lambda folder: shutil.rmtree(folder / "1_LogitScore"), "names '1_LogitScore', which is not there"),
    ],
)
def test_modules_that_do_not_lead_to_the_head_are_named(kind, change, message, folders, tmp_path):
    change(shutil.copytree(folders[kind], tmp_path / "model"))
    with pytest.raises(CheckpointError, match=message):
        load_scorer("crossencoder", tmp_path / "model", device="cpu")


def test_what_gives_no_single_score_is_refused(folders, tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="gives 3 numbers a pair"):
        load_scorer("crossencoder", text_classes(tmp_path, labels=3), device="cpu")
    with pytest.raises(CheckpointError, match="of sentence-transformers, which says how"):
        load_scorer("crossencoder", folders["log_odds"] / "made", device="cpu")
    monkeypatch.setattr(library, "__version__", "5.4.1")
    with pytest.raises(MissingExtraError, match=r"needs sentence-transformers 6 or newer, and 5\.4\.1 is installed"):
        load_scorer("crossencoder", folders["log_odds"], device="cpu")
