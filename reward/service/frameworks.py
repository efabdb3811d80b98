"""What OpenRLHF and slime send, as captions to score."""

from __future__ import annotations

from typing import Any

from reward.errors import InvalidSampleError
from reward.functions.completions import without_thinking
from reward.functions.queries import read_label, response_of, without_end
from reward.service.schemas import OpenRlhfRequest, SlimeRequest
from reward.service.scoring import Asked, BadRequest

__all__ = ["asked_by_openrlhf", "asked_by_slime"]


def asked_by_openrlhf(request: OpenRlhfRequest) -> list[Asked]:
    """One caption a query.

    Raises:
        BadRequest: prompts or labels are not as many as queries.
    """
    counts = {"queries": len(request.query), "prompts": len(request.prompts), "labels": len(request.labels)}
    if len(set(counts.values())) > 1:
        raise BadRequest("there are " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    asked = []
    for query, prompt, label in zip(request.query, request.prompts, request.labels, strict=True):
        try:
            asked.append(_asked(response_of(query, prompt), label))
        except InvalidSampleError as error:
            asked.append(Asked([""], problem=str(error)))
    return asked


def asked_by_slime(request: SlimeRequest) -> list[Asked]:
    """The only caption of the request."""
    try:
        return [_asked(without_end(request.response), request.label)]
    except InvalidSampleError as error:
        return [Asked([""], problem=str(error))]


def _asked(text: str, label: Any) -> Asked:
    image, references = read_label(label)
    return Asked([without_thinking(text).strip()], image, references or ())
