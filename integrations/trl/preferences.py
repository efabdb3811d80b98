"""From scored candidates to the data sets that TRL's DPO, KTO and SFT trainers take for vision-language models."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from reward.metrics.base import Scorer
from reward.preferences import PreferenceRules, Preferences
from reward.preferences.reading import read_candidates
from reward.preferences.writing import features, with_plain_images

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

__all__ = ["make_preference_dataset"]

logger = logging.getLogger(__name__)


def make_preference_dataset(
    data: str | os.PathLike[str] | Dataset | DatasetDict,
    prompt: str | None = None,
    *,
    rules: PreferenceRules | None = None,
    holdout: float = 0.0,
    metric: str | Scorer | None = None,
    **reading: Any,
) -> Dataset | DatasetDict:
    """Chooses pairs, labels or best captions among the scored captions of each image.

    Columns of the result: `images` (a list of one) and `prompt` (messages); of pairs, for `DPOTrainer`, `chosen` and
    `rejected`; of labels, for `KTOTrainer`, `completion` and `label`; of best captions, for `SFTTrainer`, `completion`.
    Beside them the scores: `chosen_score` and `rejected_score`, or `score`.

    Give those trainers `max_length=None`, since a cut prompt loses image tokens. KTO's own loss compares a caption with
    that of the row before it, so its trainer keeps the order of the rows, in which neighbours are of different images.

    A prompt is in TRL's or LLaVA's form, and ends with the user's last turn. Captions with a placeholder of a chat
    template, such as `<image>`, at which those trainers stop, are left out. The images are the pictures that were
    scored, see `make_prompt_dataset`.

    What is left out is logged with the reasons. `capreward pairs` does the same from file to file.

    Args:
        data: a file that `capreward score` or `capreward rerank` wrote; or rows with an image, and with `candidate` and
            `reward` or the lists `candidates` and `rewards`. See `reward.preferences.reading.read_candidates`. Encoded
            images are held in memory; paths are not opened before the training.
        prompt: what the captioner was asked; None: "Describe the image in detail."
        rules: which captions make a row; None: one pair an image, with the widest difference.
        holdout: share of the images, in a split `test` of their own.
        metric: name of a metric or a scorer, for data without scores.
        reading: further arguments of `read_candidates`, such as `image_column`, `system`, and the metric's `source`.

    Returns:
        A data set; with `holdout`, a dict of the splits `train` and `test`.

    Raises:
        DataError: the data cannot be read, or no image gives a row. The message counts the reasons.
        ConfigError: `holdout` is out of range.

    Example:
        >>> from datasets import Dataset, Image
        >>> from PIL import Image as Pillow
        >>> rows = {"image": [Pillow.new("L", (8, 8))], "candidates": [["A dot.", "A square."]]}
        >>> rows["rewards"] = [[0.1, 0.9]]
        >>> pairs = make_preference_dataset(Dataset.from_dict(rows).cast_column("image", Image()), "Describe it.")
        >>> pairs[0]["chosen"], pairs[0]["rejected_score"]
        ([{'role': 'assistant', 'content': 'A square.'}], 0.1)
    """
    from datasets import Dataset, DatasetDict  # on use: a large package

    groups = read_candidates(data, prompt=prompt, metric=metric, **reading)
    preferences = Preferences.choose(groups, rules or PreferenceRules(), holdout=holdout)
    for what, dropped in (("images", preferences.images_dropped), ("captions", preferences.captions_dropped)):
        for reason, count in dropped.most_common():
            logger.warning("%d %s left out: %s", count, what, reason)
    columns = features(preferences.rules.kind)
    made = {
        split: Dataset.from_list(with_plain_images(rows), features=columns) for split, rows in preferences.rows.items()
    }
    return DatasetDict(made) if holdout else made["train"]
