"""Models with random weights."""

from tests.untrained_checkpoints import _scene_tokenizer, captioner_folder, scene_vela_folder  # noqa: F401
