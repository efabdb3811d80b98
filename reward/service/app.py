"""The application: its paths, and what goes wrong as HTTP statuses."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

import reward
from reward.service.batching import ScoringThread
from reward.service.guard import Guard
from reward.service.schemas import ScoreReply, ScoreRequest
from reward.service.scoring import BadRequest, Scoring

_LIMITS = ("max_body", "max_pixels", "max_candidates", "max_waiting", "timeout")  # that clients are told
_BODY = '{"image": {"base64": "iVBORw0KGgo..."}, "caption": "A dog runs."}'


def make_app(thread: ScoringThread) -> FastAPI:
    """The application of a service, whose settings and metrics the thread has."""
    scoring = Scoring(thread)
    app = FastAPI(
        title="capreward",
        version=reward.__version__,
        summary="Image-caption metrics as a service",
        # `Guard` checks the token; this gives the page /docs a field for it.
        dependencies=[Depends(HTTPBearer(auto_error=False))] if thread.settings.token else [],
    )
    app.add_middleware(Guard, settings=thread.settings, counts=thread.counts)
    _handle_errors(app)

    def check_ready() -> None:
        if not thread.facts:
            raise HTTPException(503, "the metrics are not loaded yet", {"Retry-After": "1"})

    @app.get("/health", dependencies=[Depends(check_ready)])
    async def health() -> dict[str, Any]:
        """Whether the metrics are loaded; open to everyone."""
        return {"status": "ok"}

    @app.get("/info", dependencies=[Depends(check_ready)])
    async def info() -> dict[str, Any]:
        """What is served: facts of each metric, and limits."""
        limits = {name: getattr(thread.settings, name) for name in _LIMITS}
        return {"version": reward.__version__, "metrics": thread.facts, "limits": limits}

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counts for Prometheus."""
        return Response(thread.counts.text(), media_type="text/plain; version=0.0.4")

    @app.post("/score", dependencies=[Depends(check_ready)])
    async def score(request: ScoreRequest) -> ScoreReply:
        """Scores captions."""
        metric = scoring.metric(request.metric)
        samples = await scoring.score(metric, request.samples, request.weights)
        facts = thread.facts[metric]
        return ScoreReply(metric=metric, identity=facts["identity"], aspects=facts["aspects"], samples=samples)

    return app


def _handle_errors(app: FastAPI) -> None:
    def error(status: int, reason: str, headers: Any = None) -> JSONResponse:
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
        return error(problem.status_code, str(problem.detail), problem.headers)

    @app.exception_handler(BadRequest)
    async def bad(request: Request, problem: BadRequest) -> JSONResponse:
        return error(problem.status, str(problem))

    @app.exception_handler(asyncio.TimeoutError)
    async def late(request: Request, problem: Exception) -> JSONResponse:
        return error(504, "there was no answer in time", {"Retry-After": "1"})
