"""Models with random weights."""

from tests.toys.untrained_checkpoints import (  # noqa: F401
    captioner_folder,
    scene_beitscore_folder,
    scene_vela_folder,
)
