"""BEiTScore's part in training: batches, which weights are trained, the warm start, presets."""

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from reward.errors import ConfigError
from reward.metrics.beitscore.training import PRESETS, BeitScoreCollator, make_model
from reward.training.caption_pairs import ScenePairs
from reward.training.config import make_config
from reward.training.loop import train
from tests.reward.metrics.beitscore import tiny_beitscore
from tests.reward.training.small_runs import NO_STAGES, record, small_beitscore


@pytest.fixture(scope="module")
def pairs():
    """Right captions at even places, wrong ones at odd places."""
    return ScenePairs("train", 12, make_config({"loss": "bce", "scenes_train": 12, "scenes_val": 2}))


@pytest.fixture
def network(pairs):
    torch.manual_seed(0)
    network = make_model(small_beitscore().model, texts=pairs.texts)
    torch.nn.init.normal_(network.model.head[2].weight, std=3.0)  # new heads give nearly equal scores
    return network


def test_every_weight_that_a_score_depends_on_is_trained_and_no_other(network, pairs):
    batch = BeitScoreCollator(network)([pairs[item] for item in range(12)])
    labels = batch.pop("labels")

    def moving():
        network.zero_grad()
        F.binary_cross_entropy_with_logits(network(**batch).logits, labels).backward()
        return {name for name, p in network.named_parameters() if p.grad is not None and p.grad.any()}

    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert moving() == trained
    network.requires_grad_(True)  # what is left out of training does not move a score at all
    assert moving() == trained
    assert {name for name, _ in network.named_parameters()} - trained


def published(folder, vocab_size=80):
    """Settings that start from a file in the published layout, and from its sentencepiece file."""
    model = tiny_beitscore.make_model(tiny_beitscore.make_config(vocab_size=vocab_size, drop_path=0.0))
    tensors = {name: value for name, value in model.state_dict().items() if not name.startswith("head.")}
    save_file(tensors, folder / "beit3.safetensors", metadata={"heads": "4"})
    (folder / "beit3.spm").write_bytes(tiny_beitscore.train_spm())
    return {"beit3": str(folder / "beit3.safetensors"), "tokenizer": {"spm": str(folder / "beit3.spm")}}


def test_the_paper_preset_starts_from_a_published_file(tmp_path):
    settings = make_config(PRESETS["paper"], {"model": published(tmp_path)}).model
    model = make_model(settings, texts=list).model
    assert (model.config.drop_path, model.config.vocab_size) == (0.15, 80)
    expected = tiny_beitscore.make_model(tiny_beitscore.make_config(vocab_size=80)).beit3.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.beit3.state_dict().items())
    wider = make_model({**settings, "config": {"image_size": 48}}, texts=list)
    assert wider.model.config.patches == 36
    with pytest.raises(ConfigError, match="do not belong together"):
        make_model(published(tmp_path, vocab_size=20), texts=list)


def test_a_run_on_pairs_keeps_the_step_with_the_lowest_loss(tmp_path):
    config = small_beitscore(loss="bce", categories=["shuffle"], stages=NO_STAGES, epochs=3, patience=5)
    result = train("beitscore", "scenes", tmp_path, config)
    losses = {entry["eval_loss"]: entry["step"] for entry in record(tmp_path)["history"] if "eval_loss" in entry}
    assert len(losses) == 3
    assert result.best_step == losses[min(losses)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beit": "x"}, "unknown beit; known: beit3, config"),
        ({"tokenizer": {"spm": None}}, "set model.beit3 and model.tokenizer.spm"),
        ({"beit3": "beit3.pth"}, "go together"),
        ({"config": {"depth": 2}}, "depth"),
    ],
)
def test_bad_model_settings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        make_model({**small_beitscore().model, **changes}, texts=lambda: ["a red star"])


def test_the_paper_preset_is_the_papers():
    config = make_config(PRESETS["paper"])
    stages = {name: config.stage(name) for name in config.stages}
    losses = {name: (stage.loss, stage.learning_rate, stage.batch_size) for name, stage in stages.items()}
    assert losses == {**dict.fromkeys(["1a", "1b", "1c"], ("bce", 5e-7, 24)), "2": ("l1", 5e-7, 24)}
    assert {stage.sampling for stage in stages.values()} == {"pool"}
    first, second, third = (set(stages[name].categories) for name in ("1a", "1b", "1c"))
    assert {"foil", "spatial", "actant_swap", "action", "noun_attribute", "repeat", "shuffle", "retrieved"} < first
    assert (second - first, third - second) == ({"count"}, {"scene_text"})
