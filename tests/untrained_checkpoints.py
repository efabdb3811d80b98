"""Checkpoints of the embedded models' architectures with random weights, for tests of what runs on them."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["captioner_folder", "scene_beitscore_folder", "scene_vela_folder"]


@pytest.fixture(scope="session")
def _scene_tokenizer():
    from examples.research.embedded.tokenizer import train_tokenizer

    return train_tokenizer(60)


@pytest.fixture(scope="session")
def scene_vela_folder(_scene_tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A VELA with both branches and a random head."""
    import torch

    from examples.research.embedded.configs import vela_config
    from reward.metrics.vela.model import VelaModel
    from reward.metrics.vela.scorer import VelaScorer

    torch.manual_seed(0)
    model = VelaModel.from_config(vela_config(_scene_tokenizer), tokenizer=_scene_tokenizer)
    torch.nn.init.normal_(model.weight, std=0.1)
    folder = tmp_path_factory.mktemp("scene_vela")
    VelaScorer(model.eval()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def scene_beitscore_folder(_scene_tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BEiTScore of the embedded sizes."""
    import torch

    from examples.research.embedded.configs import beit_config
    from reward.metrics.beitscore.model import BeitScoreModel
    from reward.metrics.beitscore.scorer import BeitScoreScorer
    from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer

    torch.manual_seed(0)
    config = beit_config(len(_scene_tokenizer))
    tokenizer = BeitScoreTokenizer.from_fast(_scene_tokenizer, max_tokens=config.max_text_tokens)
    folder = tmp_path_factory.mktemp("scene_beitscore")
    BeitScoreScorer(BeitScoreModel(config).eval(), tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def captioner_folder(_scene_tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LLaVA with a chat template."""
    import torch

    from examples.research.embedded.captioner import make_captioner
    from examples.research.embedded.vision import make_clip

    torch.manual_seed(0)
    eos = _scene_tokenizer.eos_token
    clip = make_clip(len(_scene_tokenizer), _scene_tokenizer.eos_token_id)
    model, processor = make_captioner(_scene_tokenizer, clip.visual)
    # A random model would sample it, and in a trainer's forward pass it would ask for one image more.
    model.generation_config.suppress_tokens = [model.config.image_token_id]
    folder = tmp_path_factory.mktemp("captioner")
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    _scene_tokenizer.eos_token = eos  # make_captioner changes the tokenizer it is given
    return folder


@pytest.fixture
def models(scene_vela_folder: Path, scene_beitscore_folder: Path, captioner_folder: Path) -> dict[str, list[str]]:
    """Options that name models with random weights."""
    folders = {"vela": scene_vela_folder, "beitscore": scene_beitscore_folder, "captioner": captioner_folder}
    return {name: [f"--{name}", str(folder)] for name, folder in folders.items()}
