"""BERTScore: against the package of the authors, on two models."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf
from tokenizers import pre_tokenizers

from reward import CaptionSample, load_scorer
from reward.errors import CheckpointError, ConfigError
from reward.metrics.bertscore.scorer import BertScorer
from tests.contract import ScorerContract

WORDS = "[PAD] [UNK] [CLS] [SEP] a red star on the grass two dogs run house it is late tree and . ! blue circle".split()  # noqa: SIM905
CAPTIONS = ["a red star on the grass .", "two dogs run", "it is late"]
REFERENCES = [["the star is red", "a star on grass"], ["dogs run on grass and the house ."], ["it is late"]]
# F1, precision and recall of CAPTIONS by the package bert-score 0.3.13, on the two models of `save`. For RoBERTa it was
# told to put a space before the first word, as it did with its slow tokenizers: with transformers 5 it no longer does.
PUBLISHED = {
    "bert": [[0.962158, 0.945157, 0.979782], [0.705393, 0.695822, 0.715231], [1.0, 1.0, 1.0]],
    "roberta": [[0.850225, 0.856113, 0.891085], [0.891721, 0.913603, 0.870863], [1.0, 1.0, 1.0]],
}


def word_tokenizer(kind):
    if kind == "bert":
        return tf.BertTokenizer(vocab={word: number for number, word in enumerate(WORDS)}, model_max_length=64)
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "\u0120a"]
    vocab = {token: number for number, token in enumerate(tokens)}
    return tf.RobertaTokenizer(vocab=vocab, merges=[("\u0120", "a")], model_max_length=62)


def save(kind, folder):
    """A model of three layers, without pooler, whose weights are the same with every version of PyTorch."""
    tokenizer = word_tokenizer(kind)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    config = tf.AutoConfig.for_model(kind, vocab_size=len(tokenizer), max_position_embeddings=64, **sizes)
    model = tf.AutoModel.from_config(config, add_pooling_layer=False)
    with torch.no_grad():
        for number, weight in enumerate(each for each in model.parameters() if each.ndim > 1):
            noise = torch.sin(torch.arange(weight.numel(), dtype=torch.float64) * 12.9898 + number) * 43758.5453
            weight.copy_(noise.frac().view_as(weight))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {kind: save(kind, root / kind) for kind in PUBLISHED}


class TestBert(ScorerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, models):
        return BertScorer.from_pretrained(models["bert"], layer=2, device="cpu")


@pytest.mark.parametrize("kind", PUBLISHED)
def test_bertscore_is_that_of_the_authors_package(kind, models):
    samples = [CaptionSample(text, None, known) for text, known in zip(CAPTIONS, REFERENCES, strict=True)]
    long = CaptionSample("a star . " * 40, None, ["a star"])
    table = load_scorer("bertscore", models[kind], layer=2, device="cpu").score([*samples, long])
    assert table.scores[:3] == pytest.approx(np.array(PUBLISHED[kind]), abs=2e-5)
    assert table.truncated.tolist() == [False] * 3 + [True]
    for dtype, expected in (("auto", torch.float32), ("bfloat16", torch.bfloat16)):
        assert load_scorer("bertscore", models[kind], layer=2, dtype=dtype).model.dtype == expected


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("roberta-base", ConfigError, "layer must be from 1 to 3, the layers of this model, got 10"),  # by its name
        ("bert", ConfigError, r"which layer of .*save_pretrained\(FOLDER\)"),
        ("gpt2", ConfigError, "needs a BERT or RoBERTa, such as .* got a 'gpt2'"),
        ("embedded", CheckpointError, "such as 'FacebookAI/roberta-large'"),
    ],
)
def test_what_is_no_bert_or_names_no_layer_is_refused(source, error, message, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bert").symlink_to(models["bert"])
    Path("roberta-base").symlink_to(models["roberta"])
    gpt2 = tf.GPT2Model(tf.GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=9))
    with pytest.raises(error, match=message):
        BertScorer(gpt2, None, layer=1) if source == "gpt2" else BertScorer.from_pretrained(source)


def test_a_configuration_that_leaves_layers_out_is_refused(models, tmp_path):
    folder = shutil.copytree(models["bert"], tmp_path / "bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    with pytest.raises(CheckpointError, match=r"has weights of layers that its config\.json leaves out"):
        load_scorer("bertscore", folder, layer=1, device="cpu")
