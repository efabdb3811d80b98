"""Step 0: one byte-level BPE tokenizer for all embedded models; words of the scenes are one token each."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from examples.research.embedded.schedule import step_options
from reward.scenes import make_rated_sample

__all__ = ["SPECIAL", "load_tokenizer", "train_tokenizer"]

# Their ids are their places: CLIP takes pad 0, start 1 and end 2.
SPECIAL = ("<|pad|>", "<|startoftext|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>")
VOCABULARY = 640


def _corpus(samples: int) -> Iterator[str]:
    for index in range(samples):
        sample = make_rated_sample(random.Random(f"tokenizer {index}"))
        yield from sample.references
        yield sample.candidate.caption.text
    # Letters, digits and roles of the prompts, often enough to be worth a token each.
    words = "system user assistant Rate the caption for descriptiveness relevance fluency References Candidate Score:"
    yield from [words, *words.split()] * 200


def train_tokenizer(samples: int = 4000) -> PreTrainedTokenizerFast:
    """Trains the tokenizer on captions of the scenes; the same world gives the same tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(samples), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        bos_token="<|startoftext|>",
        eos_token="<|endoftext|>",
        extra_special_tokens={"image_token": "<image>"},
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        padding_side="left",
        model_max_length=2048,
    )


def load_tokenizer(output: Path) -> PreTrainedTokenizerFast:
    """The tokenizer under `output`, trained on the first call."""
    folder = output / "tokenizer"
    if not (folder / "tokenizer.json").exists():
        train_tokenizer().save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder, trust_remote_code=False)


def main(argv: Sequence[str] | None = None) -> None:
    """Trains the tokenizer and shows what it does to a caption."""
    tokenizer = load_tokenizer(step_options(__doc__, argv).output)
    caption = make_rated_sample(random.Random(0)).candidate.caption.text
    print(len(tokenizer), len(caption.split()), tokenizer.tokenize(caption))


if __name__ == "__main__":
    main()
