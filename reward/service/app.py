"""The routes of the service."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, HTTPException
from reward.service.images import read_image
from reward.service.schemas import SampleScores, ScoreReply, ScoreRequest
from reward.samples import CaptionSample, is_blank
from reward.service.settings import ServiceSettings
from reward.service.worker import Job
from reward.service.workers import Workers

__all__ = ["make_app"]


def make_app(settings: ServiceSettings, workers: Workers) -> FastAPI:
    app = FastAPI(title="capreward", lifespan=workers.server.lifespan)
    names = [metric.name for metric in settings.metrics]

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok"}

    @app.get("/info")
    async def info() -> dict[str, Any]:
        return {"metrics": {name: (await workers.ask(Job(name))).facts for name in names}, "limits": settings.limits}

    @app.post("/score")
    async def score(request: ScoreRequest) -> ScoreReply:
        name = request.metric or names[0]
        if name not in names:
            raise HTTPException(404, f"no {name}")
        samples = []
        for sample in request.samples:
            image = await read_image(sample.image)
            samples += [CaptionSample(c, image, sample.references) for c in sample.candidates]
        reply = await workers.ask(Job(name, samples))
        if reply.problem:
            raise HTTPException(500, reply.problem)
        spec = {m.name: m for m in settings.metrics}[name].spec
        out, row = [], 0
        for sample in request.samples:
            rows = range(row, row + len(sample.candidates))
            row = rows.stop
            out.append(SampleScores(scores=[reply.scores[r] for r in rows], rewards=[None for r in rows], errors=[reply.errors.get(r) for r in rows], truncated=[reply.truncated[r] for r in rows]))
        return ScoreReply(metric=name, identity=reply.facts["identity"], aspects=reply.facts["aspects"], samples=out)

    return app
