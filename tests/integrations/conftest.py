"""Models with random weights."""

from tests.untrained_checkpoints import (  # noqa: F401
    _scene_tokenizer,
    captioner_folder,
    scene_beitscore_folder,
    scene_vela_folder,
)
