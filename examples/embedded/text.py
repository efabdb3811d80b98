"""Step 2: the text tower learns to state the facts that a caption claims, in the image tower's coordinates."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from examples.embedded.attacked import draw_sample, is_attacked
from examples.embedded.configs import vela_config
from examples.embedded.facts import HARD, excerpt, fact_loss, fact_vector
from examples.embedded.schedule import batches_by_length, drawn_together, fit, step_options
from examples.embedded.tokenizer import load_tokenizer
from reward.backbones.clip_loading import towers_of_architecture
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import Caption, Style, describe, sample_scene

__all__: list[str] = []


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
    options = step_options(__doc__, argv, steps=1800, batch=64, lr=1e-3, start="", bound=0.3)
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
        if step < options.steps * options.bound:
            captions, attacked = [bound_sentences(rng) for _ in range(options.batch * 8)], []
        # A sentence states its facts wherever it stands: most of the reading is learned on a few at a time.
        excerpts = 0.85 if step < options.steps * 0.7 else 0.2
        captions = [excerpt(caption, rng, 3) if rng.random() < excerpts else caption for caption in captions]
        return batches_by_length(
            [*captions, *attacked], options.batch, lambda caption: len(tokenizer(caption.text).input_ids), collate, rng
        )

    batch_of = drawn_together(draw)

    def losses(step: int) -> dict[str, torch.Tensor]:
        ids, claims = batch_of(step)
        return {"claims": fact_loss(towers.encode_text(ids), claims, weights=HARD)}

    fit(losses, options, "text", {"clip": towers.clip})


if __name__ == "__main__":
    main()
