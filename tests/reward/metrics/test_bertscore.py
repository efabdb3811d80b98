"""BERTScore: against the package of the authors, on two models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    GPT2Config,
    GPT2Model,
    RobertaConfig,
    RobertaModel,
    RobertaTokenizer,
)

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


def save(kind: str, folder: Path, **sizes: Any) -> Path:
    """A model of three layers, without pooler, whose weights are the same with every version of PyTorch."""
    if kind == "bert":
        tokenizer: Any = BertTokenizer(vocab={word: number for number, word in enumerate(WORDS)}, model_max_length=64)
    else:
        tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "\u0120a"]
        vocab = {token: number for number, token in enumerate(tokens)}
        tokenizer = RobertaTokenizer(vocab=vocab, merges=[("\u0120", "a")], model_max_length=62)
    config_class, model_class = {"bert": (BertConfig, BertModel), "roberta": (RobertaConfig, RobertaModel)}[kind]
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64} | sizes
    config = config_class(vocab_size=len(tokenizer), max_position_embeddings=64, **sizes)
    model = model_class(config, add_pooling_layer=False)
    with torch.no_grad():
        for number, weight in enumerate(each for each in model.parameters() if each.ndim > 1):
            noise = torch.sin(torch.arange(weight.numel(), dtype=torch.float64) * 12.9898 + number) * 43758.5453
            weight.copy_(noise.frac().view_as(weight))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=PUBLISHED)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(request.param, tmp_path_factory.mktemp("model") / request.param)


class TestBert(ScorerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, model: Path) -> BertScorer:
        return BertScorer.from_pretrained(model, layer=2, device="cpu")


def test_bertscore_is_that_of_the_authors_package(model: Path) -> None:
    samples = [CaptionSample(text, None, known) for text, known in zip(CAPTIONS, REFERENCES, strict=True)]
    table = BertScorer.from_pretrained(model, layer=2, device="cpu").score([*samples, CaptionSample(WORDS[4] * 99)])
    assert table.scores[:3] == pytest.approx(np.array(PUBLISHED[model.name]), abs=2e-5)
    assert "needs references" in table.errors[3]
    long = CaptionSample("a star . " * 40, None, ["a star"])
    assert load_scorer("bertscore", model, layer=2).score([long, *samples]).truncated.tolist() == [True] + [False] * 3


def test_bertscore_takes_the_layer_from_the_name_and_refuses_what_it_does_not_know(model: Path, tmp_path: Path) -> None:
    named = tmp_path / "roberta-base"
    named.symlink_to(model)
    with pytest.raises(ConfigError, match=r"layer must be from 1 to 3, the layers of this model, got 10"):
        BertScorer.from_pretrained(named)
    with pytest.raises(ConfigError, match=r"which layer of .*save_pretrained\(FOLDER\)"):
        BertScorer.from_pretrained(model)
    with pytest.raises(CheckpointError, match="such as 'FacebookAI/roberta-large'"):
        BertScorer.from_pretrained("embedded")
    with pytest.raises(ConfigError, match=r"needs a BERT or RoBERTa, such as .* got a 'gpt2'"):
        BertScorer(GPT2Model(GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=9)), None, layer=1)
