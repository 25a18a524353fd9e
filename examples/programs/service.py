"""A web service: start, follow as server-sent events, decide, read. Ids are strings, so a page that
was loaded before a restart goes on after it."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from retinue import Agent, NotFound, Retinue
from retinue.events import to_sse


@dataclass
class Report:
    title: str
    findings: list[str]


writer = Agent("writer", "Research and report.", model="openai:gpt-5", output=Report)
retinue = Retinue("service.db", agents=[writer])


async def start(request: Request) -> Response:
    body, key = await request.json(), request.headers["idempotency-key"]
    meta = {"user": body["user"]}
    run = await retinue.spawn(writer, body["topic"], key=key, meta=meta, questions="ask")
    return JSONResponse({"run": run}, 202)


async def events(request: Request) -> Response:
    after = int(request.headers.get("last-event-id", "0"))
    stream = retinue.stream(request.path_params["run"], tree=True, after=after)
    return StreamingResponse((to_sse(e) async for e in stream), media_type="text/event-stream")


async def read(request: Request) -> Response:
    try:
        outcome = await retinue.outcome(await retinue.find(request.path_params["run"], writer))
    except NotFound as error:
        return JSONResponse({"error": f"There is no report {error.id}."}, 404)
    return JSONResponse(None if outcome is None else asdict(outcome.unwrap()))


async def decide(request: Request) -> Response:
    answer = await request.json()
    await retinue.decide(request.path_params["question"], answer["allow"], by=answer["user"])
    return Response(status_code=204)


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
    async with retinue:
        yield


routes = [
    Route("/reports", start, methods=["POST"]),
    Route("/reports/{run}", read),
    Route("/reports/{run}/events", events),
    Route("/questions/{question}", decide, methods=["POST"]),
]
app = Starlette(routes=routes, lifespan=lifespan)
