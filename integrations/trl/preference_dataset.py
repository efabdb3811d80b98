"""From scored candidates to the data set that TRL's `DPOTrainer` takes for vision-language models."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from reward.decoding.preference_files import features, read_candidates, with_plain_images
from reward.decoding.preferences import PreferenceRules, Preferences

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

logger = logging.getLogger(__name__)


def make_preference_dataset(
    data: str | os.PathLike[str] | Dataset | DatasetDict,
    prompt: Any = None,
    *,
    rules: PreferenceRules | None = None,
    **reading: Any,
) -> Dataset:
    """Chooses pairs among the scored captions of each image, as `capreward pairs` does from file to file.

    Columns of the result: `images` (a list of one), `prompt`, `chosen` and `rejected` (messages), `chosen_score` and
    `rejected_score`. Give the trainer `max_length=None`, since a cut prompt loses image tokens. `KTOTrainer` takes what
    `trl.data_utils.unpair_preference_dataset` makes of it, `SFTTrainer` `prompt` and `chosen`, renamed `completion`.

    Prompts are in TRL's or LLaVA's form, and the images are the pictures that were scored, see `make_prompt_dataset`.
    Captions with a placeholder of a chat template, such as `<image>`, at which trainers stop, are left out. What is
    left out is logged with the reasons.

    Args:
        data: a file that `capreward score` or `capreward rerank` wrote; or rows with an image, and with `candidate` and
            `reward` or the lists `candidates` and `rewards`. See
            `reward.decoding.preference_files.read_candidates`. Encoded images are held in memory.
        prompt: what the captioner was asked, text or messages; None: "Describe the image in detail."
        rules: which captions make a row; None: one pair an image, with the widest difference.
        reading: further arguments of `read_candidates`, such as `image_column`.

    Raises:
        DataError: the data cannot be read, or no image gives a row. The message counts the reasons.

    Example:
        >>> from datasets import Dataset, Image
        >>> from PIL import Image as Pillow
        >>> rows = {"image": [Pillow.new("L", (8, 8))], "candidates": [["A dot.", "A square."]]}
        >>> rows["rewards"] = [[0.1, 0.9]]
        >>> pairs = make_preference_dataset(Dataset.from_dict(rows).cast_column("image", Image()), "Describe it.")
        >>> pairs[0]["chosen"], pairs[0]["rejected_score"]
        ([{'role': 'assistant', 'content': 'A square.'}], 0.1)
    """
    from datasets import Dataset  # on use: a large package

    groups = read_candidates(data, prompt=prompt, **reading)
    preferences = Preferences.choose(groups, rules or PreferenceRules())
    for kind, dropped in (("images", preferences.images_dropped), ("captions", preferences.captions_dropped)):
        for reason, count in dropped.most_common():
            logger.warning("%d %s left out: %s", count, kind, reason)
    return Dataset.from_list(with_plain_images(preferences.rows), features=features())
