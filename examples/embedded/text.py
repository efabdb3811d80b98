"""Step 2: the text tower learns to state the facts that a caption claims, in the image tower's coordinates."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import open_clip
import torch
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast

from examples.embedded.clip_config import CONTEXT
from examples.embedded.facts import COORDINATES, HARD, fact_vector
from examples.embedded.schedule import fit
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/embedded"))
    parser.add_argument("--steps", type=int, default=1800)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)
    tokenizer = load_tokenizer(options.output)
    clip = make_clip(len(tokenizer), tokenizer.eos_token_id)
    clip.visual = None
    facts = len(COORDINATES)

    def batches(name: str, size: int, number: int, excerpts: float) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """`number` batches drawn together and sorted by length, so that little is padding."""
        rng = random.Random(name)
        captions = [make_candidate(sample_scene(rng), rng).caption for _ in range(size * number)]
        captions = [_excerpt(caption, rng) if rng.random() < excerpts else caption for caption in captions]
        captions.sort(key=lambda caption: len(caption.text))
        found = []
        for first in range(0, len(captions), size):
            part = captions[first : first + size]
            claims = torch.stack([fact_vector(caption.claims) for caption in part])
            found.append((clip_ids([caption.text for caption in part], tokenizer), claims))
        rng.shuffle(found)
        return found

    pool: list[tuple[torch.Tensor, torch.Tensor]] = []

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        if not pool:
            # A sentence states its facts wherever it stands: most of the reading is learned on a few at a time.
            excerpts = 0.85 if step < options.steps * 0.7 else 0.2
            pool.extend(batches(f"text {options.seed} {step}", options.batch, 8, excerpts))
        ids, claims = pool.pop()
        loss = (HARD * (encode_text(clip, ids)[:, :facts] - claims).square()).sum(1).mean()
        return loss, {}

    held_out = batches("text held out", 64, 6, 0.0)

    def evaluate() -> dict[str, float]:
        claimed = torch.cat([encode_text(clip, ids) for ids, _ in held_out])[:, :facts]
        truth = torch.cat([claims for _, claims in held_out])
        figures = {"mse": float(F.mse_loss(claimed, truth, reduction="none").sum(1).mean())}
        for kind in sorted({name[0] for name in COORDINATES}):
            index = [k for name, k in COORDINATES.items() if name[0] == kind]
            figures[kind] = float(truth[:, index].mul(claimed[:, index] > 0.5).sum() / truth[:, index].sum())
        return figures

    fit(
        clip.parameters(),
        step_loss,
        steps=options.steps,
        lr=options.lr,
        state={"clip": clip},
        folder=options.output / "text",
        evaluate=evaluate,
        evaluate_every=250,
    )


if __name__ == "__main__":
    main()
