"""BEiTScore's part in training: batches, which weights are trained, whether it can learn, the warm start, presets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from reward.errors import ConfigError
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.beitscore.training import PRESETS, BeitScoreCollator, BeitScoreNetwork, load_model, make_model
from reward.metrics.beitscore.training import save_model as save
from reward.training.config import make_config
from reward.training.pairs import CaptionPairs, ScenePairs
from tests.reward.metrics.beitscore.tiny_beitscore import make_config as model_config
from tests.reward.metrics.beitscore.tiny_beitscore import make_model as random_model
from tests.reward.metrics.beitscore.tiny_beitscore import train_spm
from tests.reward.training.small_runs import small_beitscore


@pytest.fixture(scope="module")
def pairs() -> CaptionPairs:
    config = make_config({"loss": "bce", "scenes_train": 60, "scenes_val": 2})
    return ScenePairs("train", 60, config)


@pytest.fixture
def network(pairs: CaptionPairs) -> BeitScoreNetwork:
    torch.manual_seed(0)
    return make_model(small_beitscore().model, texts=pairs.texts)


def batch_of(network: BeitScoreNetwork, rows: list[Any]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    batch = BeitScoreCollator(network)(rows)
    assert next(iter(batch)) == "labels"
    return batch, batch.pop("labels")


def test_a_batch_gives_the_scores_of_the_scorer(network: BeitScoreNetwork, pairs: CaptionPairs) -> None:
    rows = [pairs[item] for item in (0, 1, 7, 4)]
    network.eval()
    torch.nn.init.normal_(network.model.head[2].weight, std=3.0)  # new heads give nearly equal scores
    batch, labels = batch_of(network, rows)
    assert labels.tolist() == [1.0, 0.0, 0.0, 1.0]
    with torch.no_grad():
        output = network(**batch)
    scores = BeitScoreScorer(network.model, network.tokenizer).score([row["sample"] for row in rows]).scores[:, 0]
    assert torch.allclose(output.scores, torch.tensor(scores, dtype=torch.float32), atol=1e-5)
    assert torch.allclose(torch.sigmoid(output.logits), output.scores)
    assert len(output.scores.unique()) == 4


def test_every_weight_that_a_score_depends_on_is_trained_and_no_other(
    network: BeitScoreNetwork, pairs: CaptionPairs
) -> None:
    batch, labels = batch_of(network, [pairs[item] for item in range(12)])

    def moving() -> set[str]:
        network.zero_grad()
        F.binary_cross_entropy_with_logits(network(**batch).logits, labels).backward()
        return {name for name, p in network.named_parameters() if p.grad is not None and p.grad.any()}

    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert moving() == trained
    network.requires_grad_(True)  # what is left out of training does not move a score at all
    assert moving() == trained
    assert {name for name, _ in network.named_parameters()} - trained


@pytest.mark.slow
def test_the_network_learns_32_pairs_by_heart(pairs: CaptionPairs) -> None:
    sizes = {"hidden_size": 48, "heads": 4, "ffn_size": 96, "image_size": 48, "head_size": 32}
    torch.manual_seed(0)
    network = make_model(small_beitscore(model={"config": sizes}).model, texts=pairs.texts)
    # The shorter ones: it is the same proof in less time.
    lengths = [max(len(pairs[2 * k + wrong]["sample"].candidate) for wrong in (0, 1)) for k in range(60)]
    chosen = sorted(range(60), key=lambda k: lengths[k])[:32]
    batch, labels = batch_of(network, [pairs[2 * k + wrong] for k in chosen for wrong in (0, 1)])
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=2e-3, weight_decay=0)
    for _ in range(100):
        logits = network(**batch).logits
        loss = F.binary_cross_entropy_with_logits(logits, labels)
        if loss < 0.02:
            break
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    assert loss < 0.02
    assert (logits.view(-1, 2)[:, 0] > logits.view(-1, 2)[:, 1]).all()


def test_a_saved_network_is_trained_on_where_it_was(
    tmp_path: Path, network: BeitScoreNetwork, pairs: CaptionPairs
) -> None:
    save(network, tmp_path / "run", card="card")
    again = load_model(tmp_path / "run", {"gradient_checkpointing": True})
    assert again.model.beit3.gradient_checkpointing
    batch, _ = batch_of(network, [pairs[0], pairs[1]])
    assert torch.equal(network.eval()(**batch).logits, again.eval()(**batch).logits)
    frozen = {name for name, p in network.named_parameters() if not p.requires_grad}
    assert frozen == {name for name, p in again.named_parameters() if not p.requires_grad}


def published(folder: Path, vocab_size: int = 80) -> dict[str, Any]:
    """Settings that start from a file in the published layout, and from its sentencepiece file."""
    model = random_model(model_config(vocab_size=vocab_size, drop_path=0.0))
    tensors = {name: value for name, value in model.state_dict().items() if not name.startswith("head.")}
    save_file(tensors, folder / "beit3.safetensors", metadata={"heads": "4"})
    (folder / "beit3.spm").write_bytes(train_spm())
    return {"beit3": str(folder / "beit3.safetensors"), "tokenizer": {"spm": str(folder / "beit3.spm")}}


def test_the_paper_preset_starts_from_a_published_file(tmp_path: Path) -> None:
    settings = make_config(PRESETS["paper"], {"model": published(tmp_path)}).model
    network = make_model(settings, texts=list)
    assert network.model.config.drop_path == 0.15
    assert network.model.config.vocab_size == 80
    expected = random_model(model_config(vocab_size=80, drop_path=0.0)).beit3.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in network.model.beit3.state_dict().items())
    wider = make_model({**settings, "config": {"image_size": 48}}, texts=list)
    assert wider.model.config.patches == 36
    with pytest.raises(ConfigError, match="do not belong together"):
        make_model(published(tmp_path, vocab_size=20), texts=list)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beit": "x"}, "unknown beit; known: beit3, config"),
        ({"tokenizer": {"spm": None}}, "set model.beit3 and model.tokenizer.spm"),
        ({"tokenizer": {}}, r'model.tokenizer must be \{"spm": path\}'),
        ({"tokenizer": {"vocab_size": 100}}, "at least 300"),
        ({"tokenizer": {"spm": "beit3.spm"}}, "go together"),
        ({"beit3": "beit3.pth"}, "go together"),
        ({"config": {"depth": 2}}, "depth"),
        ({"config": {"heads": 3, "hidden_size": 16}}, r"heads \(3\) must divide hidden_size"),
    ],
)
def test_bad_model_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    settings = {**small_beitscore().model, **changes}
    with pytest.raises(ConfigError, match=message):
        make_model(settings, texts=lambda: ["a red star"])


def test_the_paper_preset_is_the_papers() -> None:
    config = make_config(PRESETS["paper"])
    assert (config.learning_rate, config.batch_size, config.model["config"]) == (5e-7, 24, {"drop_path": 0.15})
    assert list(config.stages) == ["1a", "1b", "1c", "2"]
    stages = [config.stage(name) for name in config.stages]
    assert [(stage.loss, stage.learning_rate, stage.batch_size) for stage in stages] == [
        *[("bce", 5e-7, 24)] * 3,
        ("l1", 5e-7, 24),
    ]
    first, second, third = (set(stage.categories) for stage in stages[:3])
    assert {"foil", "spatial", "actant_swap", "action", "noun_attribute", "repeat", "shuffle", "retrieved"} < first
    assert {stage.sampling for stage in stages} == {"pool"}
    assert (second - first, third - second) == ({"count"}, {"scene_text"})
