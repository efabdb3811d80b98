"""A scorer that looks at the image, for tests of data set scoring; slow on request, and it logs what it scored."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from reward.data.images import load_image
from reward.data.score_table import ScoreTable
from reward.errors import ImageError
from reward.metrics.base import MetricSpec

SPEC = MetricSpec(
    name="picture",
    scorer="tests.toys.picture_scorer:PictureScorer",
    aspects=("brightness", "words"),
    aliases={"bright": "brightness"},
    has_embedded=True,
)


class PictureScorer:
    """brightness: mean of the image's pixels, 0 to 1; words: number of words and references, cut (truncated) at 100.

    Unreadable images and captions that start with "fail" cannot be scored. One that starts with "die" kills its
    process, once for each character in the file `PICTURE_DEATHS`. `PICTURE_SECONDS` is how long a caption takes; each
    scored caption becomes a line of the file `PICTURE_LOG`.
    """

    spec = SPEC
    fingerprint = "picture"  # it records what it scores, which makes it no other scorer

    def __init__(self):
        self.samples = []
        self.batch_sizes = []

    def score(self, samples, *, batch_size=None, progress=False):
        self.samples += samples
        self.batch_sizes.append(batch_size)
        scores, errors, truncated = np.zeros((len(samples), 2)), {}, np.zeros(len(samples), dtype=bool)
        for row, sample in enumerate(samples):
            time.sleep(float(os.environ.get("PICTURE_SECONDS", 0)))
            if sample.candidate.startswith("die"):
                _die()
            words = len(sample.candidate.split()) + len(sample.references)
            truncated[row] = words > 100
            try:
                scores[row] = np.asarray(load_image(sample.image)).mean() / 255, min(words, 100)
            except ImageError as error:
                scores[row], errors[row] = np.nan, str(error)
            if sample.candidate.startswith("fail"):
                scores[row], errors[row] = np.nan, "the caption says fail"
        if log := os.environ.get("PICTURE_LOG"):
            with Path(log).open("a") as file:
                file.writelines(sample.candidate + "\n" for sample in samples)
        return ScoreTable(scores, self.spec.aspects, errors, truncated)

    @classmethod
    def from_pretrained(cls, source, **options):
        return cls()

    def save_pretrained(self, folder):
        raise AssertionError("scoring a data set saves no checkpoint")


def _die():
    lives = Path(os.environ["PICTURE_DEATHS"])
    if left := lives.read_text():
        lives.write_text(left[1:])
        os.kill(os.getpid(), signal.SIGKILL)
