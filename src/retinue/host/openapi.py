"""The OpenAPI 3.1 description of the application, made from its operations and their types."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import msgspec

from retinue import __version__
from retinue.host.operations import OPERATIONS, PREFIX, Operation
from retinue.host.problem_documents import MEDIA, ProblemDocument

INTERNAL = ("plan", "env")
"""Fields that only a command of the same version sends."""
REF = "#/components/schemas/{name}"
PROBLEMS = {
    "400": "The request is not what is described here.",
    "401": "The token is missing or wrong.",
    "403": "The token lacks a scope, or the request comes from another site.",
    "404": "Not found, or not visible to this token.",
    "408": "The body did not arrive in time.",
    "409": "Refused: a limit, or the state of the run.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "421": "Not a name of this host.",
    "422": "The request can be read, but not be carried out as it is: an unknown model, a rule.",
    "429": "Too many requests.",
    "500": "The host failed.",
    "502": "The provider failed.",
    "503": "Not available.",
    "507": "No space left.",
}
WATCH_NOTE = (
    "Server-sent events. Each `step` has its position in the log as its id: a client that comes "
    "back with `Last-Event-ID` gets every later step once. `delta` is text as it comes, without an "
    "id: who comes while a reply is being written gets it from its beginning, and `start` says "
    "where a piece belongs. `end` is last. 204: there is nothing after `Last-Event-ID`."
)


@functools.cache
def description() -> dict[str, Any]:
    """The whole document."""
    components = dict(_components())
    paths: dict[str, Any] = {}
    for op in _public():
        paths.setdefault(PREFIX + op.path, {})[op.method.lower()] = _operation(op, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Retinue",
            "version": __version__,
            "description": "Start, watch and steer agents and their sub-agents.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": _reachable(paths, components),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _public() -> Iterator[Operation]:
    return (op for op in OPERATIONS if not op.is_internal)


def _types() -> Iterator[Any]:
    yield ProblemDocument
    for op in _public():
        yield op.request
        if op.reply is not None:
            yield op.reply
        yield from op.events.values()


def _components() -> dict[str, Any]:
    """Only the host's own types keep their descriptions: those of the core are written for people
    who read the code."""
    types = list(dict.fromkeys(_types()))
    _, components = msgspec.json.schema_components(types, ref_template=REF)
    ours = {_name(kind) for kind in types if kind.__module__.startswith("retinue.host")}
    for name, schema in components.items():
        if name not in ours:
            schema.pop("description", None)
    return components


def _name(kind: Any) -> str:
    return str(kind.__name__)


def _operation(op: Operation, components: dict[str, Any]) -> dict[str, Any]:
    schema = components[_name(op.request)]
    text = str(schema.get("description", ""))
    out: dict[str, Any] = {
        "operationId": op.name,
        "tags": [op.about],
        "summary": text.partition(". ")[0].rstrip("."),
        "description": f"{text}\n\nScope: `{op.scope}`.",
        "parameters": list(_parameters(op, schema)),
        "responses": _responses(op),
    }
    if op.name == "watch":
        out["description"] += f"\n\n{WATCH_NOTE}"
    if op.method == "POST":
        components[_name(op.request)] = _body_schema(op, schema)
        required = bool(components[_name(op.request)].get("required"))
        content = {"application/json": {"schema": {"$ref": REF.format(name=_name(op.request))}}}
        out["requestBody"] = {"required": required, "content": content}
    else:
        components.pop(_name(op.request))
    return out


def _reachable(paths: Any, components: dict[str, Any]) -> dict[str, Any]:
    """The types that something refers to."""
    names: set[str] = set()
    todo = [msgspec.json.encode(paths).decode()]
    while todo:
        text = todo.pop()
        for name in components.keys() - names:
            if f'"{REF.format(name=name)}"' in text:
                names.add(name)
                todo.append(msgspec.json.encode(components[name]).decode())
    return {name: components[name] for name in sorted(names)}


def _body_schema(op: Operation, schema: dict[str, Any]) -> dict[str, Any]:
    hidden = {*op.path_fields, *INTERNAL}
    properties = {k: v for k, v in schema["properties"].items() if k not in hidden}
    required = [name for name in schema.get("required", ()) if name not in hidden]
    return {**schema, "properties": properties, "required": required}


def _parameters(op: Operation, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, field in schema.get("properties", {}).items():
        if name in op.path_fields:
            # A slash cannot be part of a segment, and an empty segment is another path.
            plain = {**field, "minLength": 1}
            yield {"name": name, "in": "path", "required": True, "schema": plain}
        elif op.method != "POST":
            required = name in schema.get("required", ())
            yield {"name": name, "in": "query", "required": required, "schema": field}
    header = {"type": "string", "maxLength": 200}
    if op.name == "start":
        yield {"name": "Idempotency-Key", "in": "header", "schema": header}
    if op.name == "watch":
        position = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
        yield {"name": "Last-Event-ID", "in": "header", "schema": position}


def _responses(op: Operation) -> dict[str, Any]:
    problem = {MEDIA: {"schema": {"$ref": REF.format(name="ProblemDocument")}}}
    out: dict[str, Any] = {
        status: {"description": text, "content": problem} for status, text in PROBLEMS.items()
    }
    media = op.media.partition(";")[0]
    schema: dict[str, Any] = {"type": "string"}
    if op.reply is not None:
        schema = {"$ref": REF.format(name=_name(op.reply))}
    elif op.is_stream:
        refs = {name: {"$ref": REF.format(name=_name(kind))} for name, kind in op.events.items()}
        schema = {
            "type": "object",
            "properties": {
                "event": {"enum": list(op.events)},
                "data": {"type": "string", "contentMediaType": "application/json"},
                "id": {"type": "string"},
            },
            "x-events": refs,
        }
    out[str(op.status)] = {"description": "Done.", "content": {media: {"schema": schema}}}
    if op.name == "watch":
        out["204"] = {"description": "The run has ended and there is nothing new."}
    return dict(sorted(out.items()))


def document() -> str:
    """The same as it is checked in."""
    return msgspec.json.format(msgspec.json.encode(description()), indent=1).decode() + "\n"
