"""Small pictures beside TRL's tables of completions, which hold none: `capreward report OUTPUT_DIR` shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from reward.data.chats import prompt_images
from reward.data.images import image_key
from reward.report.page import small_picture

_MOST = 4  # different pictures of a step; a page shows no more


def keep_picture(output_dir: str, image: Any, key: str) -> str:
    """Writes a small copy of an image once as `<output_dir>/pictures/<key>.jpg`; gives its path in that folder.

    Args:
        output_dir: of a trainer.
        image: as `load_image` takes it.
        key: what `image_key` gives for it.
    """
    name = f"pictures/{key}.jpg"
    file = Path(output_dir, name)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        small_picture(image).save(file, quality=85)
    return name


class KeepPictures(TrainerCallback):
    """Adds a column `picture_file` to the table of completions that a trainer writes: a path, or None.

    Args:
        trainer: a trainer of TRL with `log_completions=True`.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        # TRL calls its callbacks before it writes the table, of which all columns have a row for each prompt.
        if not state.is_world_process_zero:
            return
        names: list[str | None] = []
        keys: set[str] = set()
        for prompt in self.trainer._logs["prompt"]:
            name = None
            images = prompt_images(prompt)
            if images:
                key = image_key(images[0])
                if key in keys or len(keys) < _MOST:
                    keys.add(key)
                    name = keep_picture(args.output_dir, images[0], key)
            names.append(name)
        # A name that no reward is likely to have, as it would take the place of its column.
        self.trainer._logs["extra"]["picture_file"] = names
