"""Every route, and what must never get through to any of them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.routing import Route

from retinue.host.app import build_app
from retinue.host.operations import OPERATIONS, PREFIX
from retinue.host.request_limits import RequestLimits
from retinue.server.protocol_routes import protocol_routes
from tests.host.served import ADMIN, Served, served
from tests.waiting import SECONDS

NAMES = {
    "{run}": "r1",
    "{sha256}": "0" * 64,
    "{key}": "k",
    "{model}": "main",
    "{response_id}": "resp_r1",
    "{tenant}": "main",
    "{id}": "r1",
    "{task_id}": "r1",
    "{agent:path}": "main",
    "{name:path}": "x.mjs",
}


def plain(path: str) -> str:
    """The path with something in the place of each name."""
    for name, value in NAMES.items():
        path = path.replace(name, value)
    return path


def routes_of_the_application() -> list[tuple[str, str]]:
    """Every route that the application has: the API, other protocols, the dashboard."""
    nothing: Any = SimpleNamespace(introduction=lambda: SimpleNamespace(store=""))
    app = build_app(nothing, protocol_routes(nothing))
    assert all(isinstance(route, Route) for route in app.routes), "something else is mounted"
    routes = [route for route in app.routes if isinstance(route, Route)]
    return [
        (method, plain(route.path))
        for route in routes
        for method in sorted(route.methods or ())
        if method != "HEAD"
    ]


ROUTES = [*routes_of_the_application(), ("POST", "/nowhere"), ("GET", "/static/x.js")]
POSTS = [path for method, path in ROUTES if method == "POST"]
LIMITS = RequestLimits(body_bytes=1 << 20, body_seconds=0.3, failures_burst=10_000.0)


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with served(limits=LIMITS) as service:
        yield service


def test_every_route_is_tried() -> None:
    paths = {path for _, path in ROUTES}
    assert {"/v1/chat/completions", "/v1/responses", "/a2a", "/.well-known/agent-card.json"} < paths
    assert {"/", "/needs-you", "/r/r1", "/r/r1/main", "/page/x.mjs"} < paths
    assert {(op.method, plain(PREFIX + op.path)) for op in OPERATIONS} < set(ROUTES)
    assert not any("{" in path for path in paths) and len(ROUTES) >= 85


def raw(api: Served, data: bytes, *more: bytes, wait: float = 0.0) -> bytes:
    """What comes back for these bytes, until the server closes."""
    with socket.create_connection(("127.0.0.1", api.port), SECONDS) as line:
        for piece in (data, *more):
            try:
                line.sendall(piece)
            except ConnectionError:
                break
            time.sleep(wait)
        answer = b""
        try:
            while piece := line.recv(1 << 16):
                answer += piece
        except ConnectionError:
            pass
        return answer


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_a_token_nothing_is_told(api: Served, method: str, path: str) -> None:
    for token in (None, "", "wrong", ADMIN + "x", ADMIN[:-1]):
        reply = api.call(method, path, {} if method == "POST" else None, token=token)
        assert reply.status == 401 and reply.headers["www-authenticate"] == "Bearer"
        assert reply.json["kind"] == "NotSignedIn"
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("path", sorted({path for _, path in ROUTES[:-2]}))
def test_a_method_that_a_path_has_not_is_refused_with_those_that_it_has(
    api: Served, path: str
) -> None:
    reply = api.call("PATCH", path, token=ADMIN)
    assert reply.status == 405
    allowed = {method for method, other in ROUTES if other == path}
    assert set(reply.headers["allow"].split(", ")) >= allowed


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_host_name_that_is_not_ours_is_refused(api: Served, method: str, path: str) -> None:
    for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", ""):
        reply = api.call(method, path, {} if method == "POST" else None, Host=name)
        assert reply.status in (400, 421), name


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_page_of_another_site_is_refused(api: Served, method: str, path: str) -> None:
    body = {} if method == "POST" else None
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{api.port + 1}", "file://"):
        reply = api.call(method, path, body, Origin=origin)
        assert reply.status == 403, origin
        assert "access-control-allow-origin" not in reply.headers
    for site in ("cross-site", "same-site"):
        assert api.call(method, path, body, Sec_Fetch_Site=site).status == 403
    preflight = api.call("OPTIONS", path, Origin="http://evil.example")
    assert preflight.status == 403 and "access-control-allow-origin" not in preflight.headers


@pytest.mark.parametrize("path", POSTS)
def test_a_form_is_refused(api: Served, path: str) -> None:
    for media in (
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
    ):
        reply = api.call("POST", path, raw=b"task=x", Content_Type=media)
        assert reply.status in (404, 415), media
    assert api.call("POST", path, raw=b'{"task":"x"}', Content_Type="").status in (404, 415)


@pytest.mark.parametrize("path", POSTS)
def test_a_huge_body_is_refused(api: Served, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ADMIN}\r\n"
    text = head + "content-type: application/json\r\ncontent-length: 99999999999\r\n\r\n"
    assert b" 413 " in raw(api, text.encode()).split(b"\r\n")[0]
    chunked = head + "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    piece = b"40000\r\n" + b"x" * 0x40000 + b"\r\n"
    first = raw(api, chunked.encode(), *[piece] * 6).split(b"\r\n")[0]
    assert any(code in first for code in (b" 413 ", b" 404 ")) or not first


@pytest.mark.parametrize("path", [path for path in POSTS if path != "/nowhere"])
def test_a_slow_body_is_not_waited_for(api: Served, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ADMIN}\r\n"
    text = head + "content-type: application/json\r\ncontent-length: 1000\r\n\r\n"
    answer = raw(api, text.encode(), b"{", b" ", b" ", b" ", wait=0.12)
    assert b" 408 " in answer.split(b"\r\n")[0]


def test_a_head_that_never_ends_is_cut_off(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retinue.host.host_server.HEAD_SECONDS", 0.2)
    assert raw(api, b"GET / HTTP/1.1\r\nhost: localhost\r\n") == b""
    huge = raw(api, b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 200_000)
    assert b" 400 " in huge.split(b"\r\n")[0] or not huge


def test_headers_that_decide_may_be_there_once(api: Served) -> None:
    line = f"authorization: Bearer {ADMIN}\r\n"
    twice = (
        f"GET {PREFIX}/health HTTP/1.1\r\nhost: localhost\r\n{line}{line}connection: close\r\n\r\n"
    )
    assert b" 400 " in raw(api, twice.encode()).split(b"\r\n")[0]
    hosts = f"GET {PREFIX}/health HTTP/1.1\r\nhost: localhost\r\nhost: evil\r\n{line}\r\n"
    assert b" 400 " in raw(api, hosts.encode()).split(b"\r\n")[0]


def test_too_many_requests_and_too_many_failures_are_held_up() -> None:
    limits = RequestLimits(burst=5, per_second=0.1, failures_burst=3, failures_per_second=0.1)
    with served(limits=limits) as api:
        replies = [api.get("/health") for _ in range(7)]
        assert [r.status for r in replies] == [200] * 5 + [429] * 2
        assert int(replies[-1].headers["retry-after"]) >= 1
        failures = [api.get("/health", token="wrong-token").status for _ in range(5)]
        assert failures == [401] * 3 + [429] * 2


def test_the_log_of_requests_has_no_secrets(api: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="retinue.access")
    api.get("/runs/r1?nonsense=secret-in-the-query", Cookie="retinue_session=secret-cookie")
    api.get("/health?code=secret-code", token=None)
    for _ in range(100):  # a line is written after the answer
        lines = [r.getMessage() for r in caplog.records if r.name == "retinue.access"]
        if len(lines) == 2:
            break
        time.sleep(0.05)
    assert len(lines) == 2 and "GET /api/v1/runs/r1 400" in lines[0]
    assert not any(secret in line for line in lines for secret in ("secret", ADMIN))


def test_a_websocket_is_closed() -> None:
    """Whatever is served inside: nothing but HTTP gets through."""
    import asyncio

    from retinue.host.access_guard import AccessGuard
    from retinue.host.keyring import Keyring

    async def inside(scope: object, receive: object, send: object) -> None:
        raise AssertionError("it was reached")

    messages: list[object] = []

    async def send(message: object) -> None:
        messages.append(message)

    async def receive() -> object:
        return {"type": "websocket.connect"}

    asyncio.run(AccessGuard(inside, Keyring())({"type": "websocket"}, receive, send))
    assert messages == [{"type": "websocket.close", "code": 1008}]


def test_a_code_is_exchanged_once_for_a_cookie_that_scripts_do_not_see() -> None:
    from retinue.host.identity import OWNER
    from retinue.host.keyring import CODE_SECONDS, SESSION_SECONDS, Keyring

    now = [0.0]
    ring = Keyring(clock=lambda: now[0])
    code = ring.new_code(OWNER)
    cookie = ring.exchange(code)
    assert cookie is not None and ring.exchange(code) is None
    assert ring.of_cookie(cookie) is OWNER and ring.of_cookie(code) is None
    old = ring.new_code(OWNER)
    now[0] += CODE_SECONDS + 1
    assert ring.exchange(old) is None
    now[0] += SESSION_SECONDS
    assert ring.of_cookie(cookie) is None


def test_a_cookie_lets_a_browser_in_and_changes_nothing_without_an_origin() -> None:
    with served() as api:
        code = api.new_code()
        first = api.call("GET", f"/api/v1/runs?limit=5&code={code}", token=None)
        assert first.status == 303 and first.headers["location"] == "/api/v1/runs?limit=5"
        flags = first.headers["set-cookie"]
        assert "HttpOnly" in flags and "SameSite=Strict" in flags and "Path=/" in flags
        assert code not in first.headers["location"]
        assert api.call("GET", f"/api/v1/runs?code={code}", token=None).status == 401
        cookie = flags.partition(";")[0]
        assert api.call("GET", "/api/v1/runs", token=None, Cookie=cookie).status == 200
        body = {"task": "x"}
        assert api.post("/runs", body, token=None, Cookie=cookie).status == 403
        ours = f"http://127.0.0.1:{api.port}"
        reply = api.post("/runs", body, token=None, Cookie=cookie, Origin=ours)
        assert reply.status == 201, json.loads(reply.body)
