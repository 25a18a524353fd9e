"""Requests that nobody's client sends: each is an answer, and none is the host's mistake."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from retinue import Agent, tool
from retinue.host.access_guard import AccessGuard
from retinue.host.keyring import Keyring
from retinue.host.operations import OPERATIONS, PREFIX, Operation
from retinue.host.request_limits import RequestLimits
from retinue.testing import Scripted, call
from tests.host.served import ADMIN, ALICE, TOKENS, Served, events_of, served
from tests.waiting import until_here

POSTS = [op for op in OPERATIONS if op.method == "POST" and op.name not in ("stop", "backup")]
GETS = [op for op in OPERATIONS if op.method == "GET" and op.name != "watch_all"]
"""Those that end: what all runs do is told for as long as someone listens."""
ODD: tuple[Any, ...] = (
    None, True, -1, 2**31, 2**63, 2**64, 10**100, 1.5, 1e300, "", "\0", "\ud800", "x" * 9_000,
    "9" * 6_000, "../../etc/passwd", [], {}, [[]], {"a": 1}, "nan", "1e999",
)  # fmt: skip
DEEP = (
    b'{"a":' * 900 + b"1" + b"}" * 900,
    b'{"task":' + b"[" * 450 + b"]" * 450 + b"}",
    b"[" * 100_000,
    b'{"a":' + b"9" * 5_000 + b"}",
    b'{"a":NaN}',
    b"\xff",
    b'"x"',
)


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with served(["Done."] * 1_000, limits=RequestLimits(burst=1e9)) as service:
        service.finished()
        yield service


def path_of(op: Operation, run: str) -> str:
    return (
        (PREFIX + op.path).replace("{run}", run).replace("{sha256}", "0" * 64).replace("{key}", "k")
    )


def fields_of(op: Operation) -> list[str]:
    names = [f.name for f in msgspec.structs.fields(op.request)]
    return [name for name in names if name not in op.path_fields]


@pytest.mark.parametrize("op", POSTS, ids=lambda op: op.name)
def test_no_body_makes_the_host_fail(api: Served, op: Operation) -> None:
    bodies = [json.dumps({name: value}).encode() for name in fields_of(op) for value in ODD]
    for body in (*DEEP, *bodies):
        reply = api.call("POST", path_of(op, "r1"), raw=body, Content_Type="application/json")
        assert reply.status < 500, (body[:80], reply)


@pytest.mark.parametrize("op", GETS, ids=lambda op: op.name)
def test_no_query_makes_the_host_fail(api: Served, op: Operation) -> None:
    for name in fields_of(op):
        for value in ("", "-1", "9" * 6_000, "1e999", "nan", "%00", "%ff", "[]", "true"):
            reply = api.call("GET", f"{path_of(op, 'r1')}?{name}={value}")
            assert reply.status < 500, (name, value[:20], reply)
    for run in ("%00", "%ff", "..%2f..", "%F0%9F%98%80", "x" * 3_000):
        assert api.call("GET", path_of(op, run)).status < 500


def test_a_number_of_thousands_of_digits_is_not_read() -> None:
    """A program may mount the application behind a server that lets it through."""
    guard = AccessGuard(None, Keyring((t.value, t.identity) for t in TOKENS))
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = {
        "host": "localhost",
        "authorization": f"Bearer {ADMIN}",
        "content-length": "9" * 5_000,
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": b"",
        "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
    }
    asyncio.run(guard(scope, receive, send))
    assert messages[0]["status"] == 400


def test_whoever_decides_is_who_they_are() -> None:
    """A name in a request is for the owner's own commands; a token has a name already."""

    @tool
    def act() -> str:
        """Act."""
        return "acted"

    lead = Agent("main", model=Scripted([call("act"), "Done."]), tools=[act])
    with served(agents=[lead]) as api:
        terms = {"rules": ["ask: act"], "questions": "ask"}
        run = api.post("/runs", {"task": "Go.", "terms": terms}, token=ALICE).json["run"]
        question = until_here(lambda: api.get("/questions", token=ALICE).json["questions"])
        body = {"allow": True, "by": "the boss", "question": question[0]["id"]}
        assert api.post(f"/runs/{run}/answer", body, token=ALICE).status == 200
        api.post("/wait", {"runs": [run]}, token=ALICE)
        steps = events_of(api.get(f"/runs/{run}/events", token=ALICE).body)
    text = json.dumps(steps)
    assert "alice" in text and "the boss" not in text
