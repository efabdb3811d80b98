"""Step 5: the language model learns to compare a caption with a reference, on few objects before many."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from examples.embedded.configs import vela_config
from examples.embedded.language import prompt_batch, read_prompts
from examples.embedded.schedule import START, fit, mark_losses, step_options
from examples.embedded.tokenizer import load_tokenizer
from reward.metrics.vela.model import VelaModel
from reward.scenes import Scene, describe, make_error, sample_scene
from reward.scenes.graph import Fact
from reward.scenes.oracle import compare
from reward.scenes.samples import Candidate, RatedSample, Ratings, true_ratings

__all__ = ["MOST", "compare_losses"]

MOST = 5  # objects of a comparison
# What may be wrong, and how scenes are edited to have it wrong; sizes are learned last.
ERRORS = {
    "size": ("attribute",),
    "colour": ("attribute",),
    "pattern": ("attribute",),
    "count": ("count",),
    "position": ("spatial",),
    "action": ("action", "actant_swap"),
    "background": ("background",),
    "text": ("scene_text",),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/compare/last.pt`."""
    options = step_options(__doc__, argv, steps=6000, batch=64, lr=2e-3, start=START)
    tokenizer = load_tokenizer(options.output)
    before = torch.load(options.start or options.output / "language" / "last.pt", weights_only=True)
    image = any(name.startswith("image.") for name in before["model"])
    model = VelaModel.from_config(vela_config(tokenizer, image=image), tokenizer=tokenizer)
    tags = nn.Linear(128, 2)
    model.load_state_dict(before["model"])
    tags.load_state_dict(before["tags"])
    if model.image is not None:
        model.image.requires_grad_(False)
    if not options.start:
        _spread(model.text.decoder.embed_tokens.weight)

    def losses(step: int) -> dict[str, torch.Tensor]:
        rng = random.Random(f"compare {options.seed} {step}")
        most = min(MOST, 1 + int(MOST * step / (0.7 * options.steps)))
        return compare_losses(model, tags, rng, options.batch, rng.randint((most + 1) // 2, most))

    # Nearly constant: each number of objects is learned all at once, and late.
    fit(losses, options, "compare", {"model": model, "tags": tags}, weights={"differs": 3.0}, floor=0.3)


def compare_losses(
    model: VelaModel, tags: nn.Module, rng: random.Random, size: int, objects: int
) -> dict[str, torch.Tensor]:
    """Losses of finding the words that a reference denies, and of naming each next word that it does not deny.

    A word that is wrong in one caption is right in another: only the reference says which. Naming the next word asks
    the model to look it up there, which finding wrong words alone does not teach.

    Args:
        model, tags: the language model, and its head of wrong and damaged words.
        rng: source of chance.
        size: captions.
        objects: that each caption is about.
    """
    batch = prompt_batch(model, [(_comparison(rng, objects), 1) for _ in range(size)])
    _, hidden = read_prompts(model, batch)
    right = batch["wrong"][:, 1:] == 0
    logits = hidden[:, :-1][right] @ model.text.decoder.embed_tokens.weight.T
    named = F.cross_entropy(logits, batch["ids"][:, 1:][right])
    return {"differs": mark_losses(tags(hidden), batch)["wrong"], "named": named}


@torch.no_grad()
def _spread(embeddings: torch.Tensor) -> None:
    """Adds to each row (V, d) a random vector of about length 1.

    Step 4 leaves "big" and "small", or "pushed" and "guarded", with a cosine of .98 and more, because nothing asks it
    to tell them apart. Starting from there, comparisons of sizes were not learned in thousands of updates; from rows
    that differ, in 200.
    """
    embeddings += torch.randn_like(embeddings) / embeddings.shape[1] ** 0.5


def _comparison(rng: random.Random, objects: int) -> RatedSample:
    """A reference about some objects, and a caption about the same ones that is right or has one error."""
    wrong = rng.choice(("size", *ERRORS)) if rng.random() < 0.8 else ""
    objects = max(objects, 1 + (wrong == "action"))
    while True:
        scene = sample_scene(rng)
        topics = {each.noun for each in rng.sample(list(scene.entities), min(objects, len(scene.entities)))}
        topics |= {topic for topic in ("background", "sign") if rng.random() < 0.3}
        belief = make_error(scene, rng.choice(ERRORS[wrong]), rng) if wrong else scene
        stated = _facts(belief, topics) if belief else []
        if wrong and wrong not in {fact[0] for fact in stated if not scene.is_true(fact)}:
            continue  # the scene allows no such error, or it is about what is left out
        reference = describe(scene, rng, facts=_facts(scene, topics)).text
        caption = describe(belief or scene, rng, facts=stated)
        ratings = Ratings(true_ratings(compare(caption.claims, scene), ()), {})
        return RatedSample(scene, (reference,), Candidate(caption, (), (), ratings))


def _facts(scene: Scene, topics: set[str]) -> list[Fact]:
    """The facts of a scene about some of its objects, what they do to each other, its background or its sign."""
    about = {"action": lambda fact: {fact[1], fact[3]}, "background": lambda fact: {"background"}}
    about["text"] = lambda fact: {"sign"}
    return [f for f in sorted(scene.facts(), key=str) if about.get(str(f[0]), lambda fact: {fact[1]})(f) <= topics]


if __name__ == "__main__":
    main()
