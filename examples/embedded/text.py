"""Step 2: the text tower learns to state the facts that a caption claims, in the image tower's coordinates."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import nn
from torch.func import functional_call

from examples.embedded.attacked import draw_sample, is_attacked
from examples.embedded.configs import CONTEXT, vela_config
from examples.embedded.facts import HARD, excerpt, fact_loss, fact_vector
from examples.embedded.schedule import batches_by_length, drawn_together, fit, step_options
from examples.embedded.tokenizer import load_tokenizer
from reward.backbones.clip import ClipTowers
from reward.backbones.clip_loading import towers_of_architecture
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import Caption, Style, describe, sample_scene

__all__: list[str] = []


class TextReader(nn.Module):
    """The text tower as a module of its own, so that it can be called with another position table."""

    def __init__(self, towers: ClipTowers) -> None:
        super().__init__()
        self.towers = towers

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.towers.encode_text(ids)


def bound_sentences(rng: random.Random) -> Caption:
    """One to four sentences on two objects each: who does what to whom, and what lies where from what.

    Which noun has which role is told by the order of the words alone. In whole captions that is hardly ever learned.
    """
    scene = sample_scene(rng)
    whole = describe(scene, rng, style=Style(spatial=4))
    pairs = [each for each in whole.sentences if each.claims and each.claims[0][0] in ("action", "spatial")]
    return Caption(tuple(rng.sample(pairs, rng.randint(1, min(4, len(pairs))))))


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/text/last.pt`."""
    options = step_options(__doc__, argv, steps=1800, batch=64, lr=1e-3, start="")
    tokenizer = load_tokenizer(options.output)
    towers = towers_of_architecture(vela_config(tokenizer).image.architecture, tokenizer)
    if options.start:
        towers = VelaScorer.from_pretrained(options.start, device="cpu").model.image.towers.float()
    towers.clip.visual = None
    if (options.output / "text_before.pt").exists():
        towers.clip.load_state_dict(torch.load(options.output / "text_before.pt", weights_only=True)["clip"])

    def collate(captions: list[Caption]) -> tuple[torch.Tensor, torch.Tensor]:
        claims = torch.stack([fact_vector(caption.claims) for caption in captions])
        return towers.tokenize([caption.text for caption in captions])[0], claims

    def draw(step: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        rng = random.Random(f"text {options.seed} {step}")
        samples = [draw_sample(rng, references=0) for _ in range(options.batch * 8)]
        attacked = [sample.candidate.caption for sample in samples if is_attacked(sample)]
        captions = [sample.candidate.caption for sample in samples if not is_attacked(sample)]
        # A sentence that binds two objects is read last: most of the first half of the updates goes to such sentences.
        share = 0.8 if step < options.steps * 0.5 else 0.25
        captions = [bound_sentences(rng) if rng.random() < share else caption for caption in captions]
        if step < options.steps * 0.5:
            attacked = []
        # A sentence states its facts wherever it stands: most of the reading is learned on a few at a time.
        excerpts = 0.85 if step < options.steps * 0.7 else 0.2
        captions = [excerpt(caption, rng, 3) if rng.random() < excerpts else caption for caption in captions]
        return batches_by_length(
            [*captions, *attacked], options.batch, lambda caption: len(tokenizer(caption.text).input_ids), collate, rng
        )

    batch_of = drawn_together(draw)
    reader = TextReader(towers)

    def losses(step: int) -> dict[str, torch.Tensor]:
        ids, claims = batch_of(step)
        table = towers.clip.positional_embedding
        # Otherwise what is learned of short captions holds at the first positions only.
        room = CONTEXT - int((ids != tokenizer.pad_token_id).sum(1).max())
        shifted = {"towers.clip.positional_embedding": torch.roll(table, -random.Random(step).randint(0, room), 0)}
        return {"claims": fact_loss(functional_call(reader, shifted, (ids,)), claims, weights=HARD)}

    fit(losses, options, "text", {"clip": towers.clip})


if __name__ == "__main__":
    main()
