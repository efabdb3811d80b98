"""A VELA checkpoint with random weights, small enough to load and score in moments, and a metric of pixels."""

from __future__ import annotations

from pathlib import Path

import pytest

from reward import registry
from tests.integrations.frameworks import PictureMetric
from tests.picture_scorer import SPEC, PictureScorer


@pytest.fixture(scope="session")
def vela_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `save_pretrained` writes it: both branches, fresh backbones, a random head."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from reward.metrics.vela.config import ImageConfig, TextConfig, VelaConfig
    from reward.metrics.vela.model import VelaModel
    from reward.metrics.vela.scorer import VelaScorer

    names = ["<pad>", "<start>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "<end>"]
    inner = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokens = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", bos_token="<start>", eos_token="<end>")
    config = VelaConfig(
        text=TextConfig(
            backbone=None,
            architecture={
                "model_type": "qwen2",
                "vocab_size": len(names),
                "hidden_size": 16,
                "intermediate_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
            },
            lora=None,
            chat_template=False,
        ),
        image=ImageConfig(
            backbone=None,
            architecture={
                "model_cfg": {
                    "embed_dim": 16,
                    "vision_cfg": {"image_size": 32, "patch_size": 16, "width": 16, "layers": 1, "head_width": 8},
                    "text_cfg": {"context_length": 32, "vocab_size": len(names), "width": 16, "heads": 2, "layers": 1},
                },
                "tokenizer": {"start": 1, "end": len(names) - 1, "pad": 0},
            },
        ),
    )
    torch.manual_seed(0)
    model = VelaModel.from_config(config, tokenizer=tokens)
    torch.nn.init.normal_(model.weight)
    folder = tmp_path_factory.mktemp("vela")
    VelaScorer(model.eval()).save_pretrained(folder)
    return folder


@pytest.fixture
def picture(monkeypatch: pytest.MonkeyPatch) -> PictureMetric:
    """Installs the metric `picture`, which looks at images, and counts its calls."""
    metric = PictureMetric()

    def load(source: object, **options: object) -> PictureScorer:
        metric.scorers.append(PictureScorer())
        return metric.scorers[-1]

    monkeypatch.setattr(registry, "installed_specs", lambda: {"picture": SPEC})
    monkeypatch.setattr(PictureScorer, "from_pretrained", load)
    return metric
