"""crossencoder: its scores are those of the library's own `predict`, and nothing that a folder names is run."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from reward import CaptionSample, MetricReward, load_scorer
from reward.errors import CheckpointError, ConfigError, MissingExtraError
from reward.metrics.crossencoder.scorer import CrossEncoderScorer
from reward.registry import metric_of
from reward.scoring import score_dataset
from tests.contract import ScorerContract
from tests.reward.metrics.test_bertscore import WORDS
from tests.reward.metrics.test_vlmreward import gemma3
from tests.toys import toy_judges
from tests.toys.loopback_hub import LoopbackHub

library = pytest.importorskip("sentence_transformers", minversion="6")
from sentence_transformers import CrossEncoder  # noqa: E402
from sentence_transformers.base.modules import Dense, Transformer  # noqa: E402
from sentence_transformers.cross_encoder.modules import LogitScore  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: E402

YES_NO = [("y", "e"), ("ye", "s"), ("n", "o")]
FLAT = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def _random(model: Any) -> Any:
    torch.manual_seed(0)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def _write(folder: Path, *parts: Any) -> Path:
    for part in parts:
        part.save_pretrained(folder)
    return folder


def log_odds(folder: Path) -> Path:
    """A vision-language model that says yes or no, as Qwen3-VL-Reranker."""
    tokens = toy_judges.byte_tokenizer("<image>", merges=YES_NO)
    made = _write(folder / "made", *toy_judges.llava(tokens=tokens))
    kwargs = {"chat_template": {"add_generation_prompt": True}}
    modules = [Transformer(str(made), transformer_task="any-to-any", processing_kwargs=kwargs)]
    modules.append(LogitScore(*tokens.convert_tokens_to_ids(["yes", "no"])))
    prompts = {"prompts": {"find": "Find a caption."}, "default_prompt_name": "find"}
    return _write(folder, CrossEncoder(modules=modules, device="cpu", activation_fn=torch.nn.Sigmoid(), **prompts))


def scores_layer(folder: Path) -> Path:
    """A vision-language model, its last state, and a layer of its own."""
    made = _write(folder / "made", *toy_judges.qwen2_vl())
    layer = Dense(32, 1, activation_function=torch.nn.Identity(), module_output_name="scores")
    modules = [Transformer(str(made)), Pooling(32, "lasttoken"), layer]
    return _write(folder, CrossEncoder(modules=modules, device="cpu", activation_fn=torch.nn.Identity()))


def image_classes(folder: Path) -> Path:
    return _write(folder, *gemma3())


def text_classes(folder: Path, labels: int = 1) -> Path:
    """A reranker of texts, as transformers saves it."""
    tokens = BertTokenizer(vocab={word: number for number, word in enumerate(WORDS)}, model_max_length=24)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(tokens), max_position_embeddings=24, num_labels=labels, **sizes)
    return _write(folder, _random(BertForSequenceClassification(config)), tokens)


def text_log_odds(folder: Path) -> Path:
    tokens = toy_judges.byte_tokenizer(merges=YES_NO)
    tokens.chat_template = FLAT
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen2Config(vocab_size=len(tokens), intermediate_size=64, **sizes)
    return _write(folder, _random(Qwen2ForCausalLM(config)), tokens)


KINDS = {each.__name__: each for each in (log_odds, scores_layer, image_classes, text_classes, text_log_odds)}
REFERENCES = [["a star", "the red star on grass"], ["dogs run"]]
SAMPLES = [
    CaptionSample(caption, image, references)
    for image, references in zip(toy_judges.pictures(2), REFERENCES, strict=True)
    for caption in ("a red star .", "a red star on the grass .", "two dogs run")
]


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return KINDS[request.param](tmp_path_factory.mktemp("model"))


def test_scores_are_those_of_the_librarys_predict(folder: Path) -> None:
    scorer = load_scorer("crossencoder", folder, device="cpu")
    own = CrossEncoder(str(folder), device="cpu")
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
    assert scorer.fingerprint == load_scorer("crossencoder", folder, device="cpu", prompt="Look: ").fingerprint


class TestContract(ScorerContract):
    @pytest.fixture(scope="class", params=["log_odds", "text_classes"])
    @classmethod
    def scorer(cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CrossEncoderScorer:
        folder = KINDS[request.param](tmp_path_factory.mktemp("model"))
        return CrossEncoderScorer.from_pretrained(folder, device="cpu", max_characters=300)


def test_a_saved_cross_encoder_needs_no_name_and_its_activation_can_be_chosen(tmp_path: Path) -> None:
    log_odds(tmp_path)
    assert metric_of(tmp_path) == metric_of(text_classes(tmp_path / "text")) == "crossencoder"
    share = MetricReward(tmp_path, device="cpu").score(SAMPLES).scores
    bare = load_scorer("crossencoder", tmp_path, device="cpu", activation="none")
    assert bare.spec.range == (-np.inf, np.inf)
    assert 1 / (1 + np.exp(-bare.score(SAMPLES).scores)) == pytest.approx(share, abs=1e-6)
    with pytest.raises(ConfigError, match="activation must be one of sigmoid, none, got 'tanh'"):
        load_scorer("crossencoder", tmp_path, device="cpu", activation="tanh")


def test_a_reranker_of_texts_wants_no_column_of_images(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"caption": "a dog runs", "references": ["a dog is running"]}\n')
    text_classes(tmp_path / "model")
    summary = score_dataset(data, f"crossencoder={tmp_path / 'model'}", tmp_path / "out.jsonl", device="cpu")
    assert (summary.scored, summary.columns["image"]) == (1, None)


def test_modules_of_a_hub_id_are_fetched_with_it(tmp_path: Path, hub: LoopbackHub) -> None:
    folder = scores_layer(tmp_path / "model")
    shutil.rmtree(folder / "made")
    hub.add_folder("org/reranker", folder)
    here = load_scorer("crossencoder", folder, device="cpu").score(SAMPLES).scores
    assert MetricReward("org/reranker", device="cpu").score(SAMPLES).scores == pytest.approx(here)


def test_a_caption_that_names_a_file_is_read_as_text_and_a_long_one_is_flagged(tmp_path: Path) -> None:
    """The library opens texts that look like images, and would fetch them from the network."""
    log_odds(tmp_path / "image")
    toy_judges.pictures(1)[0].save(tmp_path / "a.png")
    samples = [CaptionSample(text, SAMPLES[0].image) for text in (str(tmp_path / "a.png"), "http://127.0.0.1:9/a.png")]
    assert not load_scorer("crossencoder", tmp_path / "image", device="cpu").score(samples).errors
    texts = load_scorer("crossencoder", text_classes(tmp_path / "text"), device="cpu")
    long = [CaptionSample("a star " * count, None, ["a red star ."]) for count in (2, 40)]
    assert texts.score(long).truncated.tolist() == [False, True]


def _change(name: str, **values: Any) -> Callable[[Path], None]:
    """Sets values in a JSON file of the folder, or in the first or last module that modules.json lists."""

    def change(folder: Path) -> None:
        file = folder / name
        content = json.loads(file.read_text())
        (content[-1] if isinstance(content, list) else content).update(values)
        file.write_text(json.dumps(content))

    return change


class _Runs:
    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


def _pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": _Runs()}))
    _change("sentence_bert_config.json", model_kwargs={"weights_only": False})(folder)


def _without_a_layer(folder: Path) -> None:
    file = folder / "model.safetensors"
    save_file({key: value for key, value in load_file(file).items() if "mlp.up" not in key}, file, {"format": "pt"})


def _remote(folder: Path) -> None:
    (folder / "code.py").write_text("import os\nos.mkdir('ran')\nclass C: pass\n")
    maps = {"AutoConfig": "code.C", "AutoModelForMultimodalLM": "code.C"}
    _change("config.json", model_type="own", auto_map=maps)(folder)


def _own_module(folder: Path) -> None:
    (folder / "code.py").write_text("import os\nos.mkdir('ran')\nclass C: pass\n")
    _change("modules.json", type="code.C")(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_own_module, "asks for the module 'code.C', which is not run"),
        (_change("modules.json", type="os.system"), "asks for the module 'os.system'"),
        (_change("modules.json", type="sentence_transformers.base.model.torch.load"), "which is not run"),
        (_change("modules.json", type="sentence_transformers.base.modules.Router"), "which is not run"),
        (_change("modules.json", path="../elsewhere"), "leaves its folder"),
        (_remote, "wants to run code of its own"),
        (_pickle, "cannot be read"),
        (_change("config_sentence_transformers.json", activation_fn="torch.cuda.init"), "activation 'torch.cuda.init'"),
        (_change("config_sentence_transformers.json", activation_fn="os.abort"), "activation='sigmoid' or 'none'"),
        (_change("sentence_bert_config.json", tokenizer_name_or_path="some/other"), "tokenizer_name_or_path='some/oth"),
        (_change("sentence_bert_config.json", config_kwargs={"attn_implementation": "a/b"}), "which is not read"),
        (_change("config.json", _attn_implementation="a/b"), "which is code from the Hub"),
        (
            _change(
                "sentence_bert_config.json",
                modality_config={"image": {"method": "init_weights", "method_output_name": None}},
            ),
            "only forward is called",
        ),
        (_without_a_layer, "lacks 2 weights"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "holds adapters: merge them"),
    ],
)
def test_nothing_that_a_folder_names_is_run_and_nothing_is_made_up(
    change: Callable[[Path], Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    change(log_odds(tmp_path / "model"))
    with pytest.raises(CheckpointError, match=message):
        load_scorer("crossencoder", "model", device="cpu")
    assert not (tmp_path / "ran").exists()


def test_an_activation_of_a_layer_is_one_of_torch(tmp_path: Path) -> None:
    scores_layer(tmp_path)
    _change("2_Dense/config.json", activation_function="torch.utils.data.DataLoader")(tmp_path)
    with pytest.raises(CheckpointError, match=r"asks for the activation 'torch\.utils\.data\.DataLoader'"):
        load_scorer("crossencoder", tmp_path, device="cpu")


def test_what_gives_no_single_score_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match="gives 3 numbers a pair"):
        load_scorer("crossencoder", text_classes(tmp_path / "three", labels=3), device="cpu")
    plain = _write(tmp_path / "plain", *toy_judges.llava())
    with pytest.raises(CheckpointError, match="of sentence-transformers, which says how"):
        load_scorer("crossencoder", plain, device="cpu")
    shutil.copytree(tmp_path / "three", tmp_path / "base")
    _change("config.json", architectures=["BertModel"])(tmp_path / "base")
    file = tmp_path / "base" / "model.safetensors"
    save_file({key: value for key, value in load_file(file).items() if "classifier" not in key}, file)
    with pytest.raises(CheckpointError, match=r"lacks 2 weights .*classifier.bias"):
        load_scorer("crossencoder", tmp_path / "base", device="cpu")
    monkeypatch.setattr(library, "__version__", "5.4.1")
    with pytest.raises(MissingExtraError, match=r"needs sentence-transformers 6 or newer, and 5\.4\.1 is installed"):
        load_scorer("crossencoder", plain, device="cpu")
