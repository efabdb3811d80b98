"""The embedded models with random weights in place of their own, for tests of what runs on checkpoints of a folder."""

import pytest

__all__ = ["captioner_folder", "models", "scene_beitscore_folder", "scene_vela_folder"]


def _forget(network):
    """Draws all matrices anew, as wide as what they read needs; biases and norms stay."""
    import torch

    torch.manual_seed(0)
    for name, value in network.named_parameters():
        if value.dim() > 1:
            wide = 0.02 if "embed" in name else value[0].numel() ** -0.5
            torch.nn.init.normal_(value, std=wide)


@pytest.fixture(scope="session")
def scene_vela_folder(tmp_path_factory):
    """A VELA with both branches and a random head."""
    from reward import load_scorer

    return _saved_scorer(load_scorer("vela", device="cpu"), tmp_path_factory.mktemp("scene_vela"))


@pytest.fixture(scope="session")
def scene_beitscore_folder(tmp_path_factory):
    """A BEiTScore of the embedded sizes."""
    from reward import load_scorer

    return _saved_scorer(load_scorer("beitscore", device="cpu"), tmp_path_factory.mktemp("scene_beitscore"))


def _saved_scorer(scorer, folder):
    _forget(scorer.model)
    scorer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def captioner_folder(tmp_path_factory):
    """A LLaVA with a chat template."""
    from integrations.trl import load_policy

    model, processor = load_policy("embedded")
    _forget(model)
    # A random model would sample it, and in a trainer's forward pass it would ask for one image more.
    model.generation_config.suppress_tokens = [model.config.image_token_id]
    folder = tmp_path_factory.mktemp("captioner")
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture
def models(scene_vela_folder, scene_beitscore_folder, captioner_folder):
    """Options that name models with random weights."""
    folders = {"vela": scene_vela_folder, "beitscore": scene_beitscore_folder, "captioner": captioner_folder}
    return {name: [f"--{name}", str(folder)] for name, folder in folders.items()}
