"""`GET /v1/models`: lists agents as models."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from retinue.host.app import carry_out, identity_of
from retinue.host.host import Host
from retinue.host.replies import AgentInfo
from retinue.host.requests import DefinitionsRequest
from retinue.server.openai.agent_requests import json_response
from retinue.server.openai.api_errors import ApiProblem


async def list_models(host: Host, request: Request) -> Response:
    return json_response({"object": "list", "data": await _models(host, request)})


async def one_model(host: Host, request: Request) -> Response:
    name = request.path_params["model"]
    for model in await _models(host, request):
        if model["id"] == name:
            return json_response(model)
    raise ApiProblem(404, f"The model {name[:80]!r} does not exist.", code="model_not_found")


async def _models(host: Host, request: Request) -> list[dict[str, Any]]:
    reply = await carry_out(host, DefinitionsRequest(), identity_of(request))
    return [_model(agent) for agent in reply.agents]


def _model(agent: AgentInfo) -> dict[str, Any]:
    """`description` is beside what the API has: front ends that know it show it."""
    return {
        "id": agent.name,
        "object": "model",
        "created": 0,
        "owned_by": "retinue",
        "description": agent.description,
    }
