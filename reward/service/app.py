"""The application: its paths, and what goes wrong as HTTP statuses."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

import reward
from reward.errors import ServiceError
from reward.service.guard import Guard
from reward.service.schemas import ErrorReply, InfoReply, ScoreReply, ScoreRequest
from reward.service.scoring import AsksWorkers, BadRequest, Scoring
from reward.service.settings import ServiceSettings
from reward.service.telemetry import Telemetry
from reward.service.worker import Job

__all__ = ["make_app"]

_BODY = '{"image": {"base64": "iVBORw0KGgo..."}, "caption": "A dog runs."}'


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
        metric = scoring.metric(request.metric)
        facts, samples = await scoring.score(metric, request.samples, request.weights)
        return ScoreReply(metric=metric, identity=facts["identity"], aspects=facts["aspects"], samples=samples)

    return app


def _handle_errors(app: FastAPI) -> None:
    def error(status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
        return JSONResponse({"error": reason[:1000]}, status, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, problem: RequestValidationError) -> JSONResponse:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        fault = ascii(f"{place or 'the body'}: {first['msg']}")[1:-1]  # the place may hold what was sent
        if "json" not in request.headers.get("content-type", ""):
            fault = "send the body as JSON, with the header Content-Type: application/json"
        return error(422, f"{fault[:600]}. A body that works: {_BODY}")

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
