"""Step 2: the text tower learns to state the facts that a caption claims, in the image tower's coordinates."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import open_clip
import torch
from transformers import PreTrainedTokenizerFast

from examples.embedded.configs import CONTEXT
from examples.embedded.facts import COORDINATES, HARD, fact_figures, fact_vector
from examples.embedded.schedule import batches_by_length, drawn_together, fit, step_options
from examples.embedded.tokenizer import load_tokenizer
from examples.embedded.vision import make_clip
from reward.scenes import Caption, make_candidate, sample_scene

__all__ = ["clip_ids", "encode_text"]


def clip_ids(captions: list[str], tokenizer: PreTrainedTokenizerFast) -> torch.Tensor:
    """Token ids (B, longest): start, caption, end, then padding; at most CONTEXT."""
    rows = [
        [
            tokenizer.bos_token_id,
            *tokenizer(caption, add_special_tokens=False).input_ids[: CONTEXT - 2],
            tokenizer.eos_token_id,
        ]
        for caption in captions
    ]
    longest = max(map(len, rows))
    return torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows])


def encode_text(clip: open_clip.CLIP, ids: torch.Tensor) -> torch.Tensor:
    """Text features (B, D) of ids (B, L <= CONTEXT). The tower is causal, so the padding left out changes nothing."""
    length = ids.shape[1]
    hidden = clip.token_embedding(ids) + clip.positional_embedding[:length]
    hidden = clip.ln_final(clip.transformer(hidden, attn_mask=clip.attn_mask[:length, :length]))
    ends = (ids == clip.text_eos_id).int().argmax(1)
    features: torch.Tensor = hidden[torch.arange(len(ids)), ends] @ clip.text_projection
    return features


def _excerpt(caption: Caption, rng: random.Random) -> Caption:
    """One to three neighbouring sentences of a caption."""
    size = min(len(caption.sentences), rng.randint(1, 3))
    first = rng.randint(0, len(caption.sentences) - size)
    closed = caption.closed or first + size < len(caption.sentences)
    return Caption(caption.sentences[first : first + size], closed)


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/text/last.pt`."""
    options = step_options(__doc__, argv, steps=1800, batch=64, lr=1e-3)
    tokenizer = load_tokenizer(options.output)
    clip = make_clip(len(tokenizer), tokenizer.eos_token_id)
    clip.visual = None
    facts = len(COORDINATES)

    def collate(captions: list[Caption]) -> tuple[torch.Tensor, torch.Tensor]:
        claims = torch.stack([fact_vector(caption.claims) for caption in captions])
        return clip_ids([caption.text for caption in captions], tokenizer), claims

    def batches(name: str, size: int, number: int, excerpts: float) -> list[tuple[torch.Tensor, torch.Tensor]]:
        rng = random.Random(name)
        captions = [make_candidate(sample_scene(rng), rng).caption for _ in range(size * number)]
        captions = [_excerpt(caption, rng) if rng.random() < excerpts else caption for caption in captions]
        return batches_by_length(captions, size, lambda caption: len(caption.text), collate, rng)

    # A sentence states its facts wherever it stands: most of the reading is learned on a few at a time.
    batch_of = drawn_together(
        lambda step: batches(
            f"text {options.seed} {step}", options.batch, 8, 0.85 if step < options.steps * 0.7 else 0.2
        )
    )

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        ids, claims = batch_of(step)
        loss = (HARD * (encode_text(clip, ids)[:, :facts] - claims).square()).sum(1).mean()
        return loss, {}

    held_out = cache(lambda: batches("text held out", 64, 6, 0.0))

    def evaluate() -> dict[str, float]:
        claimed = torch.cat([encode_text(clip, ids) for ids, _ in held_out()])[:, :facts]
        truth = torch.cat([claims for _, claims in held_out()])
        return fact_figures(claimed, truth)

    fit(
        clip.parameters(),
        step_loss,
        options,
        "text",
        state={"clip": clip},
        evaluate=evaluate,
        evaluate_every=250,
    )


if __name__ == "__main__":
    main()
