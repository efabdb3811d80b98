"""Models with random weights, and a metric of pixels."""

from __future__ import annotations

import pytest

from reward import registry
from tests.integrations.frameworks import PictureMetric
from tests.toys.picture_scorer import SPEC, PictureScorer
from tests.toys.untrained_checkpoints import (  # noqa: F401
    captioner_folder,
    scene_beitscore_folder,
    scene_vela_folder,
)


@pytest.fixture
def picture(monkeypatch: pytest.MonkeyPatch) -> PictureMetric:
    """Installs the metric `picture`, which looks at images, and counts its calls."""
    metric = PictureMetric()

    def load(source: object, **options: object) -> PictureScorer:
        metric.scorers.append(PictureScorer())
        return metric.scorers[-1]

    monkeypatch.setattr(registry, "installed_specs", lambda: {"picture": SPEC})
    monkeypatch.setattr(PictureScorer, "from_pretrained", load)
    return metric
