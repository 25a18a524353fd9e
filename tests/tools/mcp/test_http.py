"""Servers behind an address, on loopback: both eras, sessions that are forgotten, streams that
break, and headers that must not go astray."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from retinue.tools.mcp_client import McpServers, ServerConfig
from retinue.tools.mcp_client.transports.http_client import may_follow, url_text
from tests.tools.mcp.client_support import call, servers
from tests.waiting import SECONDS

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]
TOOLS = [{"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}]


class Peer:
    """A server that answers as its `era` says. `seen` are the headers and bodies that came in."""

    def __init__(self, era: str = "handshake", streams: bool = False) -> None:
        self.era, self.streams = era, streams
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        self.sessions: set[str] = set()
        self.n_sessions = 0
        self.special: Callable[[web.Request, Any], Awaitable[web.StreamResponse | None]] | None = (
            None
        )

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.seen.append((request.method, dict(request.headers), body))
        if self.special is not None:
            answer = await self.special(request, body)
            if answer is not None:
                return answer
        if request.method == "DELETE":
            self.sessions.discard(request.headers["Mcp-Session-Id"])
            return web.Response()
        if request.method != "POST":
            return web.Response(status=405)
        if self.era == "modern":
            return self._modern(request, body)
        return await self._handshake(request, body)

    def _modern(self, request: web.Request, body: Any) -> web.Response:
        method, meta = body["method"], body["params"]["_meta"]
        assert (
            request.headers["MCP-Protocol-Version"]
            == meta["io.modelcontextprotocol/protocolVersion"]
        )
        assert request.headers["Mcp-Method"] == method
        if method == "server/discover":
            result: Any = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        elif method == "tools/list":
            result = {"tools": TOOLS}
        elif method == "tools/call":
            assert request.headers["Mcp-Name"] == body["params"]["name"]
            result = {
                "content": [{"type": "text", "text": str(body["params"]["arguments"].get("text"))}]
            }
        else:
            error = {"code": -32601, "message": "no"}
            return web.json_response(
                {"jsonrpc": "2.0", "id": body["id"], "error": error}, status=404
            )
        return web.json_response(
            {"jsonrpc": "2.0", "id": body["id"], "result": {**result, "resultType": "complete"}}
        )

    async def _handshake(self, request: web.Request, body: Any) -> web.StreamResponse:
        session = request.headers.get("Mcp-Session-Id")
        if "id" not in body:
            return web.Response(status=202)
        headers = {}
        if body["method"] == "initialize":
            self.n_sessions += 1
            headers["Mcp-Session-Id"] = f"s{self.n_sessions}"
            self.sessions.add(f"s{self.n_sessions}")
            result: Any = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "peer"},
            }
        elif session is None:
            error = {"code": -32000, "message": "Bad Request: no session"}
            return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=400)
        elif session not in self.sessions:
            return web.Response(status=404)
        elif body["method"] == "tools/list":
            result = {"tools": TOOLS}
        else:
            result = {
                "content": [{"type": "text", "text": str(body["params"]["arguments"].get("text"))}]
            }
        message = {"jsonrpc": "2.0", "id": body["id"], "result": result}
        if not self.streams:
            return web.json_response(message, headers=headers)
        return await stream(
            request,
            [": hello\r\n\r\n", event({"jsonrpc": "2.0", "method": "x"}), event(message)],
            headers,
        )


def event(message: Any, id: str = "") -> str:
    return (f"id: {id}\n" if id else "") + f"event: message\ndata: {json.dumps(message)}\n\n"


async def stream(
    request: web.Request, parts: list[str], headers: dict[str, str] | None = None
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **(headers or {})})
    await response.prepare(request)
    for part in parts:
        await response.write(part.encode())
    await response.write_eof()
    return response


@asynccontextmanager
async def serving(peer: Answering) -> AsyncIterator[str]:
    async def each(request: web.Request) -> web.StreamResponse:
        return await peer(request)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", each)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def remote(url: str, **fields: Any) -> ServerConfig:
    value = {"kind": "http", "start_seconds": 10.0, "call_seconds": 10.0, **fields}
    return ServerConfig(name="web", url=f"{url}/mcp", **value)


@asynccontextmanager
async def at(peer: Peer, **fields: Any) -> AsyncIterator[McpServers]:
    async with serving(peer) as url, servers(remote(url, **fields)) as result:
        yield result


@pytest.mark.parametrize(
    ("era", "streams", "version"),
    [
        ("modern", False, "2026-07-28"),
        ("handshake", False, "2025-06-18"),
        ("handshake", True, "2025-06-18"),
    ],
)
def test_a_server_of_either_era_is_understood(era: str, streams: bool, version: str) -> None:
    async def main() -> None:
        peer = Peer(era, streams)
        async with at(peer, headers={"Authorization": "Bearer t"}) as result:
            assert (await call(result, "mcp__web__echo", text="hello")).text == "hello"
            assert result.status()[0].version == version
        assert all(headers["Authorization"] == "Bearer t" for _, headers, _ in peer.seen)
        assert peer.sessions == set(), "what was begun is ended"
        if era == "modern":
            assert all("Mcp-Session-Id" not in headers for _, headers, _ in peer.seen)
        else:
            assert peer.seen[-1][0] == "DELETE"
            listing = next(
                headers for _, headers, body in peer.seen if body and body["method"] == "tools/list"
            )
            assert listing["MCP-Protocol-Version"] == "2025-06-18"
            assert "Mcp-Method" not in listing

    asyncio.run(main())


def test_a_forgotten_session_is_begun_anew_and_the_call_made_once_more() -> None:
    async def main() -> None:
        peer = Peer()
        async with at(peer) as result:
            peer.sessions.clear()
            answers = await asyncio.gather(
                *(call(result, "mcp__web__echo", text=str(n)) for n in range(5))
            )
            assert [a.text for a in answers] == ["0", "1", "2", "3", "4"]
            assert peer.n_sessions == 2

    asyncio.run(main())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_header_follows_a_redirect_to_another_origin(status: int) -> None:
    async def main() -> None:
        thief = Peer("modern")
        async with serving(thief) as elsewhere:

            async def redirect(request: web.Request) -> web.Response:
                return web.Response(status=status, headers={"Location": f"{elsewhere}/mcp"})

            async with (
                serving(redirect) as url,
                servers(remote(url, headers={"X-Key": "s3cret"})) as result,
            ):
                [status_] = result.status()
                assert status_.state == "dead"
                assert elsewhere in status_.reason
                assert "s3cret" not in status_.reason
        assert thief.seen == []

    asyncio.run(main())


@pytest.mark.parametrize(
    "target", ["http://h.test:999999999/", "http://[::1", "javascript:alert(1)", "", "//"]
)
def test_a_redirect_to_no_address_at_all_is_an_error_like_any_other(target: str) -> None:
    async def main() -> None:
        async def redirect(request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": target})

        async with serving(redirect) as url, servers(remote(url)) as result:
            assert result.status()[0].state == "dead"
            assert result.status()[0].reason

    asyncio.run(main())


def test_a_server_that_forgets_at_once_what_was_agreed_is_given_up() -> None:
    async def main() -> None:
        peer = Peer()

        async def forgets(request: web.Request, body: Any) -> web.Response | None:
            return web.Response(status=404) if "Mcp-Session-Id" in request.headers else None

        peer.special = forgets
        async with at(peer) as result:
            assert "dropped the session" in result.status()[0].reason

    asyncio.run(main())


def test_a_redirect_that_stays_is_followed_with_its_body() -> None:
    async def main() -> None:
        peer = Peer("modern")

        async def moved(request: web.Request, body: Any) -> web.Response | None:
            return (
                None
                if request.path == "/new"
                else web.Response(status=308, headers={"Location": "/new"})
            )

        peer.special = moved
        async with at(peer) as result:
            assert (await call(result, "mcp__web__echo", text="there")).text == "there"

    asyncio.run(main())


def test_only_the_same_origin_or_its_encrypted_twin_is_followed() -> None:
    assert may_follow("http://a.test/x", "http://a.test:80/y")
    assert may_follow("http://a.test/x", "https://a.test/x")
    for other in (
        "http://b.test/x",
        "https://a.test:8443/x",
        "http://a.test.evil.test/",
        "file:///x",
        "http://a.test:81",
    ):
        assert not may_follow("http://a.test/x", other)
    assert not may_follow("https://a.test/x", "http://a.test/x")
    assert url_text("https://u:p@a.test:1/x?key=1#f") == "https://a.test:1/x"


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "HTTP 401"), (403, "HTTP 403"), (500, "HTTP 500"), (404, "HTTP 404")],
)
def test_a_server_that_refuses_says_so_with_its_status(status: int, words: str) -> None:
    async def main() -> None:
        async def refuse(request: web.Request) -> web.Response:
            return web.Response(status=status, text="<html>no</html>", content_type="text/html")

        async with serving(refuse) as url, servers(remote(url)) as result:
            assert words in result.status()[0].reason

    asyncio.run(main())


def test_a_server_that_is_not_there_says_so() -> None:
    async def main() -> None:
        async with serving(Peer()) as url:
            pass
        async with servers(remote(url)) as result:
            assert f"cannot be reached at {url}" in result.status()[0].reason

    asyncio.run(main())


def test_a_stream_that_breaks_off_is_taken_up_again_where_it_ended() -> None:
    async def main() -> None:
        peer = Peer()
        questions: list[Any] = []

        async def broken(request: web.Request, body: Any) -> web.StreamResponse | None:
            if body and body["method"] == "tools/call":
                questions.append(body["id"])
                return await stream(request, ["id: 1\nretry: 10\ndata:\n\n"])
            if request.method == "GET" and request.headers["Last-Event-ID"] == "1":
                return await stream(request, [event({"jsonrpc": "2.0", "method": "x"}, "2")])
            if request.method == "GET" and request.headers["Last-Event-ID"] == "2":
                result = {"content": [{"type": "text", "text": "resumed"}]}
                return await stream(
                    request, [event({"jsonrpc": "2.0", "id": questions[0], "result": result}, "3")]
                )
            return None

        peer.special = broken
        async with at(peer) as results:
            assert (await call(results, "mcp__web__echo")).text == "resumed"
            assert len(questions) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("application/json", b'{"jsonrpc": "2.0", "id": 1, "res', "invalid JSON"),
        ("application/json", b"[" * 100_000, "nested too deeply"),
        ("application/json", b'"' + b"x" * (11 << 20) + b'"', "too_large"),
        ("text/event-stream", b"data: " + b"x" * (11 << 20) + b"\n\n", "too_large"),
        ("text/event-stream", b"data: {\n\n", "invalid JSON"),
        ("text/event-stream", b": nothing\n\n", "ended too early"),
        ("text/html", b"<html>", "text/html"),
        ("application/json", b'{"jsonrpc": "2.0", "id": 99, "result": {}}', "ended too early"),
    ],
)
def test_an_answer_that_cannot_be_used_fails_its_call(kind: str, body: bytes, words: str) -> None:
    async def main() -> None:
        peer = Peer("modern")

        async def bad(request: web.Request, message: Any) -> web.Response | None:
            if message["method"] == "tools/call" and message["params"]["arguments"].get("bad"):
                return web.Response(body=body, headers={"Content-Type": kind})
            return None

        peer.special = bad
        async with at(peer) as result:
            answer = await call(result, "mcp__web__echo", bad=True)
            assert answer.error
            assert words in answer.text
            assert "may still have taken effect" in answer.text
            assert (await call(result, "mcp__web__echo", text="fine")).text == "fine"

    asyncio.run(main())


def test_a_packed_answer_is_refused_for_it_may_be_a_bomb() -> None:
    async def main() -> None:
        peer = Peer("modern")

        async def packed(request: web.Request, message: Any) -> web.Response | None:
            assert request.headers["Accept-Encoding"] == "identity"
            if message["method"] == "tools/call":
                return web.Response(
                    body=b"\x1f\x8b",
                    headers={"Content-Type": "application/json", "Content-Encoding": "gzip"},
                )
            return None

        peer.special = packed
        async with at(peer) as result:
            assert (
                "an encoding (gzip) that was not requested"
                in (await call(result, "mcp__web__echo")).text
            )

    asyncio.run(main())


def test_an_endless_stream_is_ended() -> None:
    async def main() -> None:
        from retinue.tools.mcp_client import ServerLimits

        peer = Peer("modern")

        async def endless(request: web.Request, message: Any) -> web.StreamResponse | None:
            if message["method"] != "tools/call":
                return None
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            try:
                while True:
                    await response.write(
                        event({"jsonrpc": "2.0", "method": "x", "params": "y" * 10_000}).encode()
                        * 10
                    )
            except ConnectionError:
                return response

        peer.special = endless
        limits = ServerLimits(flood_bytes=8 << 20, message_bytes=1 << 20)
        async with (
            serving(peer) as url,
            servers(remote(url, call_seconds=30.0), limits=limits) as result,
        ):
            assert (
                "sent too much data that was not requested"
                in (await call(result, "mcp__web__echo")).text
            )

    asyncio.run(main())


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_cancelled_call_ends_its_request(era: str) -> None:
    async def main() -> None:
        peer, is_let_go, is_under_way = Peer(era), asyncio.Event(), asyncio.Event()

        async def slow(request: web.Request, message: Any) -> web.StreamResponse | None:
            if message and message["method"] == "tools/call":
                is_under_way.set()
                try:
                    await asyncio.sleep(3_600)
                finally:
                    is_let_go.set()
            return None

        peer.special = slow
        async with at(peer) as result:
            under_way = asyncio.create_task(call(result, "mcp__web__echo"))
            await is_under_way.wait()
            under_way.cancel()
            with pytest.raises(asyncio.CancelledError):
                await under_way
            await asyncio.wait_for(is_let_go.wait(), SECONDS)
        methods = [
            b["method"] for _, _, b in peer.seen if b and b["method"] == "notifications/cancelled"
        ]
        assert len(methods) == (1 if era == "handshake" else 0)

    asyncio.run(main())


def test_the_old_wire_may_not_send_us_elsewhere() -> None:
    async def main() -> None:
        async def astray(request: web.Request) -> web.StreamResponse:
            return await stream(request, ["event: endpoint\ndata: https://evil.test/post\n\n"])

        async with serving(astray) as url, servers(remote(url, kind="sse")) as result:
            assert "another server" in result.status()[0].reason

    asyncio.run(main())
