"""What the service takes and gives, as OpenAPI shows it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)  # a misspelt field must not be taken for a missing one


class Base64Image(_Strict):
    """An encoded image as base64."""

    base64: str


class PathImage(_Strict):
    """A path below the service's image root."""

    path: str


Image = str | Base64Image | PathImage
Texts = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class ScoreSample(_Strict):
    """Captions of one image, with the references they share, and what else their metric needs."""

    candidates: Annotated[
        Texts,
        Field(min_length=1, validation_alias=AliasChoices("candidates", "captions", "candidate", "caption")),
    ]
    image: Annotated[Image | None, Field(description='Base64 or a data URL, or {"path": "..."}.')] = None
    references: Texts = []
    columns: Annotated[dict[str, Any], Field(description='Such as {"rubric": ["It names the dog."]}.')] = {}


class ScoreRequest(_Strict):
    """Captions to score, or one sample by itself: {"image": {"base64": "iVBORw..."}, "caption": "A dog runs."}.

    `metric` may be left out where the service has one; `weights` are for `rewards`.
    """

    samples: list[ScoreSample]
    metric: str | None = None
    weights: dict[str, float] | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_sample(cls, body: Any) -> Any:
        if isinstance(body, dict) and "samples" not in body:
            settings = {name: body[name] for name in ("metric", "weights") if name in body}
            sample = {name: value for name, value in body.items() if name not in settings}
            return {"samples": [sample], **settings}
        return body


class SampleScores(BaseModel):
    """Scores of a sample's candidates, in order.

    `scores` has a row a candidate and a column an aspect, and `rewards` their weighted means. Where a candidate cannot
    be scored, both hold null and `errors` says why; but a candidate without a word, whose sample lacks nothing, has the
    lowest reward of the metric. `truncated` tells whose text was cut to fit the model.
    """

    scores: list[list[float | None]]
    rewards: list[float | None]
    errors: list[str | None]
    truncated: list[bool]


class ScoreReply(BaseModel):
    """Scores, and what gave them: `identity` changes with metric, checkpoint, precision and version."""

    metric: str
    identity: str
    aspects: list[str]
    samples: list[SampleScores]
