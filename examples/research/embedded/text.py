"""Step 2: the text tower learns to state the facts that a caption claims, in the image tower's coordinates."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from examples.research.embedded.attacked import draw_sample, is_attacked
from examples.research.embedded.configs import CONTEXT, vela_config
from examples.research.embedded.facts import HARD, excerpt, fact_loss, fact_vector
from examples.research.embedded.schedule import START, batches_by_length, drawn_together, fit, step_options
from examples.research.embedded.tokenizer import load_tokenizer
from reward.backbones.clip import ClipTowers
from reward.backbones.clip_loading import towers_of_architecture
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import Caption, Style, describe, sample_scene
from reward.scenes.graph import ACTIONS, NOUNS

__all__: list[str] = []

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
LINKING = (*ACTIONS, "above", "below", "left", "right")
LINKS = (1 + len(NOUNS) * len(LINKING),) * 2  # classes of the two nouns that a sentence links


class TextReader(nn.Module):
    """The text tower as a module of its own, so that it can be called with another position table."""

    def __init__(self, towers: ClipTowers, width: int) -> None:
        super().__init__()
        self.towers = towers
        self.states = torch.empty(0)
        # Before the last layer, in which the end token reads what the others know.
        self.towers.clip.transformer.resblocks[-2].register_forward_hook(self._keep)
        self.links = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, sum(LINKS)))

    def _keep(self, module: nn.Module, inputs: Any, states: torch.Tensor) -> None:
        self.states = states

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the captions claim (B, D), and logits (B, L, sum of `LINKS`) of what each token's sentence links."""
        return self.towers.encode_text(ids), self.links(self.states)


def link_labels(caption: Caption, ids: Sequence[int], stop: int) -> list[list[int]]:
    """Labels of each token, -100 but at full stops: each noun of the sentence with its role; 0 where it links none.

    Noun and role together, because that is what a claim is: from the two apart, the end token cannot make it.
    """
    labels = [[-100] * len(LINKS) for _ in ids]
    stops = [place for place, token in enumerate(ids) if token == stop]
    for place, sentence in zip(stops, caption.sentences, strict=False):
        linked = [claim for claim in sentence.claims if claim[0] in ("action", "spatial")]
        labels[place] = [0] * len(LINKS)
        if linked:
            _, first, link, second = linked[0]
            role = LINKING.index(str(link)) * len(NOUNS)
            labels[place] = [1 + role + NOUNS.index(str(noun)) for noun in (first, second)]
    return labels


def bound_sentences(rng: random.Random) -> Caption:
    """One to four sentences on two objects each: who does what to whom, and what lies where from what.

    Which noun has which role is told by the order of the words alone. In whole captions that is hardly ever learned.
    """
    scene = sample_scene(rng)
    whole = describe(scene, rng, style=Style(spatial=4))
    actions = [each for each in whole.sentences if each.claims and each.claims[0][0] == "action"]
    places = [each for each in whole.sentences if each.claims and each.claims[0][0] == "spatial"]
    # Of actions a scene has one at most, and roles are learned of them later than of places: first comes the action.
    drawn = rng.sample(places, rng.randint(0 if actions else 1, min(3, len(places)))) + actions
    return Caption(tuple(rng.sample(drawn, len(drawn))))


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/text/last.pt`."""
    options = step_options(__doc__, argv, steps=1800, batch=64, lr=1e-3, start=START)
    tokenizer = load_tokenizer(options.output)
    towers = towers_of_architecture(vela_config(tokenizer).image.architecture, tokenizer)
    if options.start and not options.start.endswith(".pt"):
        towers = VelaScorer.from_pretrained(options.start, device="cpu").model.image.towers.float()
    towers.clip.visual = None
    if options.start.endswith(".pt"):
        towers.clip.load_state_dict(torch.load(options.start, weights_only=True)["clip"])

    def collate(captions: list[Caption]) -> Batch:
        claims = torch.stack([fact_vector(caption.claims) for caption in captions])
        ids = towers.tokenize([caption.text for caption in captions])[0]
        known = [
            [] if len(caption.sentences) == 1 and not caption.closed else caption.sentences for caption in captions
        ]
        shown = [Caption(tuple(sentences)) for sentences in known]
        labels = [link_labels(caption, row, stop) for caption, row in zip(shown, ids.tolist(), strict=True)]
        return ids, claims, torch.tensor(labels)

    def draw(step: int) -> list[Batch]:
        rng = random.Random(f"text {options.seed} {step}")
        samples = [draw_sample(rng, references=0) for _ in range(options.batch * 8)]
        attacked = [sample.candidate.caption for sample in samples if is_attacked(sample)]
        captions = [sample.candidate.caption for sample in samples if not is_attacked(sample)]
        # A sentence that binds two objects is read last: most of the first half of the updates goes to such sentences.
        share = 0.5 if step < options.steps * 0.5 else 0.25
        captions = [bound_sentences(rng) if rng.random() < share else caption for caption in captions]
        if step < options.steps * 0.3:
            attacked = []
        # A sentence states its facts wherever it stands: most of the reading is learned on a few at a time.
        excerpts = 0.85 if step < options.steps * 0.7 else 0.2
        captions = [excerpt(caption, rng, 3) if rng.random() < excerpts else caption for caption in captions]
        return batches_by_length(
            [*captions, *attacked], options.batch, lambda caption: len(tokenizer(caption.text).input_ids), collate, rng
        )

    batch_of = drawn_together(draw)
    reader = TextReader(towers, 192)
    stop = tokenizer.convert_tokens_to_ids(".")

    def losses(step: int) -> dict[str, torch.Tensor]:
        ids, claims, labels = batch_of(step)
        table = towers.clip.positional_embedding
        # Otherwise what is learned of short captions holds at the first positions only.
        room = CONTEXT - int((ids != tokenizer.pad_token_id).sum(1).max())
        shifted = {"towers.clip.positional_embedding": torch.roll(table, -random.Random(step).randint(0, room), 0)}
        stated, logits = functional_call(reader, shifted, (ids,))
        labels = labels[:, : logits.shape[1]]
        parts = zip(logits.split(LINKS, dim=-1), labels.unbind(-1), strict=True)
        links = sum(F.cross_entropy(part.flatten(0, 1), label.flatten(), reduction="sum") for part, label in parts)
        links = links / (labels[..., 0] >= 0).sum().clamp(min=1)  # a batch may have no full stop
        return {"claims": fact_loss(stated, claims, weights=HARD), "links": 3 * links}

    modules = {"clip": towers.clip, "links": reader.links}
    fit(losses, options, "text", modules)


if __name__ == "__main__":
    main()
