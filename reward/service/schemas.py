"""What `POST /score` takes and gives, as OpenAPI shows it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Base64Image", "ImageField", "PathImage", "SampleScores", "ScoreReply", "ScoreRequest", "ScoreSample", "UrlImage"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")  # a misspelt field must not be taken for a missing one


class Base64Image(_Strict):
    """An encoded image as base64."""

    base64: str


class PathImage(_Strict):
    """A path below the service's image root."""

    path: str


class UrlImage(_Strict):
    """An address at a host that the service may fetch from, or a data URL."""

    url: str


# A string is a data URL, an address, or else a path.
ImageField = Annotated[str | Base64Image | PathImage | UrlImage | None, Field(description="String: data URL, address or path")]


class ScoreSample(_Strict):
    """Captions of one image, with the references they share."""

    candidates: Annotated[list[str], Field(min_length=1)]
    image: ImageField = None
    references: list[str] = []


class ScoreRequest(_Strict):
    """Captions to score; `metric` may be left out where the service has one."""

    samples: list[ScoreSample]
    metric: str | None = None
    weights: dict[str, float] | None = None


class SampleScores(BaseModel):
    """Scores of a sample's candidates, in order.

    `scores` has a row a candidate and a column an aspect. Where a candidate cannot be scored, `scores` and `rewards`
    hold null and `errors` says why. `truncated` tells whose text was cut to fit the model.
    """

    scores: list[list[float | None]]
    rewards: list[float | None]
    errors: list[str | None]
    truncated: list[bool]


class ScoreReply(BaseModel):
    """Scores, and which metric gave them: `identity` is equal for equal metric, checkpoint, precision and version."""

    metric: str
    identity: str
    aspects: list[str]
    samples: list[SampleScores]
