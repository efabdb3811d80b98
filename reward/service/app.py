"""The application: its paths, and what goes wrong as HTTP statuses."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

import reward
from reward.errors import ServiceError, WeightsError
from reward.service.frameworks import asked_by_openrlhf, asked_by_slime
from reward.service.guard import Guard
from reward.service.schemas import (
    ErrorReply,
    InfoReply,
    OpenRlhfReply,
    OpenRlhfRequest,
    ScoreReply,
    ScoreRequest,
    SlimeRequest,
)
from reward.service.scoring import Asked, AsksWorkers, BadRequest, Scored, Scoring
from reward.service.settings import ServiceSettings
from reward.service.telemetry import Telemetry
from reward.service.worker import Job
from reward.weights import parse_weights

__all__ = ["make_app"]

Metric = Annotated[str | None, Query(description="Which metric; default: the first that the service was started with.")]
Weights = Annotated[
    str | None, Query(description="Weights of the aspects, such as desc=1,rel=2; default: the metric's.")
]
Unscored = Annotated[
    float | None, Query(description="Reward of a caption that cannot be scored; default: null.", allow_inf_nan=False)
]


def make_app(settings: ServiceSettings, workers: AsksWorkers, lifespan: Any = None) -> FastAPI:
    """The application of a service.

    Args:
        settings: what is served, and the limits.
        workers: score; has the attribute `ready`, the number of those that can.
        lifespan: of the application, see FastAPI.
    """
    telemetry = Telemetry()
    scoring = Scoring(settings, workers, telemetry)
    app = FastAPI(
        title="capreward",
        version=reward.__version__,
        summary="Image-caption metrics as a service",
        lifespan=lifespan,
        responses={
            status: {"model": ErrorReply, "description": text}
            for status, text in {
                400: "Not a request",
                401: "Wrong token",
                408: "The body came too slowly",
                413: "The body is too large",
                422: "The request cannot be answered",
                429: "Too many requests",
            }.items()
        },
    )
    app.add_middleware(Guard, settings=settings, telemetry=telemetry)
    _handle_errors(app)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether there is a worker that can score; open to everyone."""
        if not _ready(workers):
            raise HTTPException(503, "no worker is ready", {"Retry-After": "1"})
        return {"status": "ok"}

    @app.get("/info")
    async def info() -> InfoReply:
        """What is served, as the workers have loaded it."""
        facts = {name: (await workers.ask(Job(name))).facts for name in scoring.names}
        return InfoReply(
            version=reward.__version__, metrics=facts, limits=dict(settings.limits), workers=_ready(workers)
        )

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counts for Prometheus."""
        telemetry.workers.set(_ready(workers))
        return Response(telemetry.text(), media_type="text/plain; version=0.0.4")

    @app.post("/score")
    async def score(request: ScoreRequest) -> ScoreReply:
        """Scores captions."""
        asked = [Asked(each.candidates, each.image, each.references) for each in request.samples]
        scored = await scoring.score(scoring.metric(request.metric), asked, request.weights)
        facts = scored.facts
        return ScoreReply(
            metric=scored.metric, identity=facts["identity"], aspects=facts["aspects"], samples=scored.samples
        )

    @app.post("/get_reward")
    async def get_reward(
        request: OpenRlhfRequest, metric: Metric = None, weights: Weights = None, unscored: Unscored = None
    ) -> OpenRlhfReply:
        """Rewards for OpenRLHF (`--reward.remote_url http://HOST:PORT/get_reward`)."""
        scored = await scoring.score(
            scoring.metric(metric, by_default=True), asked_by_openrlhf(request), _weights(weights)
        )
        rewards = [unscored if value is None else value for value in scored.rewards()]
        if rewards and all(value is None for value in rewards):
            return OpenRlhfReply(rewards=None, scores=None, extra_logs={})
        rows = [row for sample in scored.samples for row in sample.scores]
        logs = {
            f"{scored.metric}/{name}": [row[column] for row in rows]
            for column, name in enumerate(scored.facts["aspects"])
        }
        complete = {name: values for name, values in logs.items() if None not in values}
        return OpenRlhfReply(rewards=rewards, scores=_in_unit_range(rewards, scored), extra_logs=complete)

    @app.post("/slime")
    async def slime(
        request: SlimeRequest, metric: Metric = None, weights: Weights = None, unscored: Unscored = None
    ) -> float | None:
        """Reward for slime (`--rm-type remote_rm --rm-url http://HOST:PORT/slime`), a number."""
        scored = await scoring.score(
            scoring.metric(metric, by_default=True), asked_by_slime(request), _weights(weights)
        )
        reward_of = scored.rewards()[0]
        return unscored if reward_of is None else reward_of

    return app


def _handle_errors(app: FastAPI) -> None:
    def error(status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
        return JSONResponse({"error": reason[:1000]}, status, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, problem: RequestValidationError) -> JSONResponse:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        return error(422, ascii(f"{place or 'the body'}: {first['msg']}")[1:-1])  # the place may hold what was sent

    @app.exception_handler(HTTPException)
    async def refused(request: Request, problem: HTTPException) -> JSONResponse:
        return error(problem.status_code, str(problem.detail), dict(problem.headers or {}))

    @app.exception_handler(BadRequest)
    async def bad(request: Request, problem: BadRequest) -> JSONResponse:
        return error(problem.status, str(problem))

    @app.exception_handler(asyncio.TimeoutError)
    async def late(request: Request, problem: Exception) -> JSONResponse:
        return error(504, "no worker answered in time", {"Retry-After": "1"})

    @app.exception_handler(ServiceError)
    async def broken(request: Request, problem: ServiceError) -> JSONResponse:
        return error(422, str(problem))  # a 5xx would have it sent again


def _ready(workers: Any) -> int:
    return int(getattr(workers, "ready", 1))


def _weights(text: str | None) -> dict[str, float] | None:
    try:
        return None if text is None else parse_weights(text)
    except WeightsError as error:
        raise BadRequest(str(error)) from None


def _in_unit_range(rewards: list[float | None], scored: Scored) -> list[float | None]:
    """Rewards between 0 and 1, for OpenRLHF's filter, where the metric has a lowest and a highest score."""
    low, high = scored.facts["range"]
    if low is None or high is None or high <= low:
        return rewards
    return [None if value is None else (value - low) / (high - low) for value in rewards]
