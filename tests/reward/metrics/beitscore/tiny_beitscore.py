"""A BEiTScore small enough for tests: random weights, a byte-level tokenizer, a sentencepiece file."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from reward.metrics.beitscore.config import BeitScoreConfig
from reward.metrics.beitscore.model import BeitScoreModel
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer
from tests.reward.metrics.tiny_vela import make_tokenizer, picture

__all__ = ["make_config", "make_fast", "make_model", "make_scorer", "make_spm_scorer", "picture", "train_spm"]

TEXTS = ["The red star is on the green grass.", "A red circle on a white ground.", "Two blue squares stand there."]


def make_fast() -> Any:
    """The fast tokenizer of the tests with a start token: `<start>` text `<end>`."""
    from transformers import PreTrainedTokenizerFast

    backend = make_tokenizer().backend_tokenizer
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<start>", eos_token="<end>")


def make_config(**changes: Any) -> BeitScoreConfig:
    sizes = {"hidden_size": 32, "layers": 2, "heads": 4, "ffn_size": 64, "image_size": 32, "patch_size": 8}
    settings = {**sizes, "vocab_size": len(make_fast()), "text_positions": 66, "head_size": 16, **changes}
    return BeitScoreConfig(**settings)


def make_model(config: BeitScoreConfig | None = None, seed: int = 0) -> BeitScoreModel:
    """In eval mode, with weights large enough that scores differ."""
    torch.manual_seed(seed)
    model = BeitScoreModel(config or make_config()).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(("beit3.text_embed", "beit3.vision_embed", "beit3.encoder.embed_positions", "head")):
                parameter.normal_(std=0.5)
    return model


def make_scorer(config: BeitScoreConfig | None = None, **options: Any) -> BeitScoreScorer:
    model = make_model(config)
    tokenizer = BeitScoreTokenizer.from_fast(make_fast(), max_tokens=model.config.max_text_tokens)
    return BeitScoreScorer(model, tokenizer, **options)


def make_spm_scorer(folder: Path) -> BeitScoreScorer:
    """The same with a sentencepiece file, which is written into the folder."""
    (folder / "beit3.spm").write_bytes(train_spm())
    model = make_model()
    tokenizer = BeitScoreTokenizer.from_spm(folder / "beit3.spm", max_tokens=model.config.max_text_tokens)
    return BeitScoreScorer(model, tokenizer)


@lru_cache(maxsize=1)
def train_spm(**settings: int) -> bytes:
    """A sentencepiece file laid out as XLM-R's, unless `settings` say otherwise."""
    content = io.BytesIO()
    limits = {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2, **settings}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS * 20), model_writer=content, **limits)
    return content.getvalue()
