"""The routes of OpenAI's APIs and of A2A as an OpenAPI document, made from the types that read
their requests. Only the fuzzer needs it: clients have the descriptions of those protocols."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from retinue.host.problem_documents import OPENAI_PREFIX
from retinue.server.a2a.a2a_endpoint import CARD, MEDIA, PLAIN
from retinue.server.a2a.a2a_methods import METHODS
from retinue.server.a2a.agent_card import PREFIX
from retinue.server.openai.chat_requests import ChatRequest
from retinue.server.openai.openai_routes import TABLE
from retinue.server.openai.response_requests import ResponseRequest

BODIES: dict[str, Any] = {"openai_chat": ChatRequest, "openai_respond": ResponseRequest}
STATUSES = (200, 204, 304, 400, 401, 403, 404, 408, 409, 413, 415, 421, 422, 429, 503, 507)
"""Every status that these routes may answer with. 500 is not among them."""
REF = "#/components/schemas/{name}"
ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "object"}}}
RPC = {
    "type": "object",
    "required": ["jsonrpc", "method"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer"]},
        "method": {"enum": sorted(METHODS)},
        "params": {
            "anyOf": [{"$ref": REF.format(name=m.params.__name__)} for m in METHODS.values()]
        },
    },
}


def protocol_schema(agent: str) -> dict[str, Any]:
    """`agent` is one that can be asked, so that some requests reach it."""
    kinds = [*BODIES.values(), *{m.params for m in METHODS.values()}]
    _, components = msgspec.json.schema_components(kinds, ref_template=REF)
    for name in ("ChatRequest", "ResponseRequest"):
        components[name]["properties"]["model"] = {"anyOf": [{"const": agent}, {"type": "string"}]}
    paths: dict[str, Any] = {}
    for path, method, operation in _operations():
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Protocols of others", "version": "1"},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for method, path, name, _ in TABLE:
        body = {"$ref": REF.format(name=BODIES[name].__name__)} if name in BODIES else None
        yield OPENAI_PREFIX + path, method, _operation(OPENAI_PREFIX + path, name, body)
    yield CARD, "GET", _operation(CARD, "card", None)
    yield PREFIX, "POST", _operation(PREFIX, "rpc", RPC, version=True)
    for method, path, name in PLAIN:
        body = {"$ref": REF.format(name=METHODS[name].params.__name__)}
        for before, label in ((PREFIX, ""), (f"{PREFIX}/{{tenant}}", "tenant_")):
            id = f"{label}{method}_{name}"
            sent_body = body if method == "POST" else None
            yield before + path, method, _operation(before + path, id, sent_body, version=True)


def _operation(
    path: str, id: str, body: dict[str, Any] | None, *, version: bool = False
) -> dict[str, Any]:
    segment = {"type": "string", "minLength": 1}
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": segment}
        for name in re.findall(r"\{(\w+)\}", path)
    ]
    if version:
        one = {"enum": ["1.0"]}
        parameters.append({"name": "A2A-Version", "in": "header", "required": True, "schema": one})
    out: dict[str, Any] = {"operationId": id, "parameters": parameters, "responses": {}}
    for status in STATUSES:
        answer: dict[str, Any] = {"description": "As its protocol says."}
        if status >= 400:
            answer["content"] = {"application/json": {"schema": ERROR}}
        out["responses"][str(status)] = answer
    if body is not None:
        media = MEDIA if path.startswith(PREFIX) else "application/json"
        out["requestBody"] = {"required": True, "content": {media: {"schema": body}}}
    return out
