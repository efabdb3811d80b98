"""A BEiTScore small enough for tests: random weights, a byte-level tokenizer, a sentencepiece file."""

import io
from functools import lru_cache

import sentencepiece
import torch
from transformers import PreTrainedTokenizerFast

from reward.metrics.beitscore.config import BeitScoreConfig
from reward.metrics.beitscore.model import BeitScoreModel
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer
from tests.reward.metrics.tiny_vela import make_tokenizer

TEXTS = ["The red star is on the green grass.", "A red circle on a white ground.", "Two blue squares stand there."]


def make_fast():
    """The fast tokenizer of the tests with a start token: `<start>` text `<end>`."""
    backend = make_tokenizer().backend_tokenizer
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<start>", eos_token="<end>")


def make_config(**changes):
    sizes = {"hidden_size": 32, "layers": 2, "heads": 4, "ffn_size": 64, "image_size": 32, "patch_size": 8}
    return BeitScoreConfig(
        **{**sizes, "vocab_size": len(make_fast()), "text_positions": 66, "head_size": 16, **changes}
    )


def make_model(config=None):
    """In eval mode, with weights large enough that scores differ."""
    torch.manual_seed(0)
    model = BeitScoreModel(config or make_config()).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(("beit3.text_embed", "beit3.vision_embed", "beit3.encoder.embed_positions", "head")):
                parameter.normal_(std=0.5)
    return model


def make_scorer():
    model = make_model()
    return BeitScoreScorer(model, BeitScoreTokenizer.from_fast(make_fast(), max_tokens=model.config.max_text_tokens))


@lru_cache(maxsize=2)
def train_spm(**settings):
    """A sentencepiece file laid out as XLM-R's, unless `settings` say otherwise."""
    content = io.BytesIO()
    limits = {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2, **settings}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS * 20), model_writer=content, **limits)
    return content.getvalue()
