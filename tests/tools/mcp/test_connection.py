"""One connection, on virtual time and a wire in memory: who waits for what, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from retinue.testing import run_virtual
from retinue.tools.mcp_client import McpError, ServerLimits
from retinue.tools.mcp_client.connection import McpConnection
from retinue.tools.mcp_client.transports.base import Lost, Receive

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
SHAKEN = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
REFUSED = {"code": -32601, "message": "Method not found"}
OTHER = {"code": -32022, "message": "modern only", "data": {"supported": ["2026-07-28"]}}


class MemoryWire:
    """`on` says, by method, what comes back: seconds, and then a message without its id. More than
    one may."""

    is_inline = False
    is_logging_in = False

    def __init__(self, **on: list[tuple[float, dict[str, Any]]]) -> None:
        self.on = on
        self.sent: list[dict[str, Any]] = []
        self.receive: Receive = lambda _: False
        self.lost: Lost = lambda _: None

    async def open(self, receive: Receive, callback: Lost) -> None:
        self.receive, self.lost = receive, callback

    async def send(self, message: dict[str, Any], headers: Mapping[str, str]) -> None:
        self.sent.append(message)
        for seconds, answer in (
            self.on.get(message["method"].replace("/", "_"), []) if "method" in message else []
        ):
            result = {"jsonrpc": "2.0", **answer}
            if "method" not in result:
                result["id"] = message["id"]
            elif result["method"] == "notifications/progress":
                result["params"] = {"progressToken": message["id"], **result["params"]}
            asyncio.get_running_loop().call_later(seconds, self.receive, result)

    async def close(self) -> None: ...

    def tail(self) -> str:
        return ""

    def forget(self) -> None: ...


def methods(wire: MemoryWire) -> list[str]:
    return [m["method"] for m in wire.sent if "method" in m]


async def opened(wire: MemoryWire, **limits: Any) -> McpConnection:
    connection = McpConnection(wire, ServerLimits(**limits))
    await connection.open(30.0)
    return connection


def progress(n: float) -> dict[str, Any]:
    return {"method": "notifications/progress", "params": {"progress": n}}


def in_time(test: Callable[[], Any]) -> float:
    async def main() -> float:
        await test()
        return asyncio.get_running_loop().time()

    return run_virtual(main())


def test_a_modern_server_is_asked_once() -> None:
    async def main() -> None:
        wire = MemoryWire(server_discover=[(0.1, {"result": DISCOVERED})])
        connection = await opened(wire)
        assert connection.hello is not None
        assert connection.hello.version == "2026-07-28"
        assert methods(wire) == ["server/discover"]

    in_time(main)


@pytest.mark.parametrize(
    "error", [REFUSED, {"code": -32602, "message": "Invalid"}, {"code": 0}, {"message": []}]
)
def test_whoever_does_not_know_the_question_is_asked_in_the_old_way(error: Any) -> None:
    async def main() -> None:
        wire = MemoryWire(
            server_discover=[(0.1, {"error": error})], initialize=[(0.1, {"result": SHAKEN})]
        )
        connection = await opened(wire)
        assert connection.hello is not None
        assert connection.hello.era == "handshake"
        assert methods(wire) == ["server/discover", "initialize", "notifications/initialized"]

    assert in_time(main) < 1.0


def test_a_discovery_that_names_old_versions_only_leads_to_the_handshake() -> None:
    async def main() -> None:
        result = {"supportedVersions": ["2025-11-25"], "capabilities": {}}
        wire = MemoryWire(
            server_discover=[(0.1, {"result": result})], initialize=[(0.1, {"result": SHAKEN})]
        )
        assert (await opened(wire)).hello.version == "2025-11-25"  # type: ignore[union-attr]

    in_time(main)


def test_whoever_says_nothing_is_asked_in_both_ways_after_a_while() -> None:
    async def main() -> None:
        wire = MemoryWire(initialize=[(0.1, {"result": SHAKEN})])
        assert (await opened(wire)).hello.era == "handshake"  # type: ignore[union-attr]

    assert 5.0 <= in_time(main) < 6.0


@pytest.mark.parametrize("late", [5.05, 5.5, 9.0])
def test_a_slow_modern_server_is_taken_at_its_word_whichever_answer_comes_first(
    late: float,
) -> None:
    async def main() -> None:
        wire = MemoryWire(
            server_discover=[(late, {"result": DISCOVERED})], initialize=[(0.2, {"error": OTHER})]
        )
        assert (await opened(wire)).hello.era == "modern"  # type: ignore[union-attr]

    assert in_time(main) < 20.0


def test_a_server_of_an_unknown_future_is_refused_and_not_asked_in_the_old_way() -> None:
    async def main() -> None:
        error = {"code": -32022, "message": "no", "data": {"supported": ["2031-01-01"]}}
        wire = MemoryWire(server_discover=[(0.1, {"error": error})])
        with pytest.raises(McpError):
            await opened(wire)
        assert methods(wire) == ["server/discover"]

    in_time(main)


def test_a_server_that_never_answers_times_out() -> None:
    async def main() -> None:
        with pytest.raises(McpError, match="30 s"):
            await opened(MemoryWire())

    assert in_time(main) == pytest.approx(30.0)


def test_progress_keeps_a_call_alive() -> None:
    async def main() -> None:
        ticks = [(n * 8.0, progress(n)) for n in range(1, 11)]
        wire = MemoryWire(
            server_discover=[(0, {"result": DISCOVERED})],
            tools_call=[*ticks, (88.0, {"result": {"a": 1}})],
        )
        connection = await opened(wire)
        assert await connection.request("tools/call", {"name": "t"}, seconds=10.0) == {"a": 1}

    assert in_time(main) == pytest.approx(88.0)


def test_the_same_progress_again_is_no_sign_of_life() -> None:
    async def main() -> None:
        ticks = [(n * 1.0, progress(5)) for n in range(1, 50)]
        wire = MemoryWire(server_discover=[(0, {"result": DISCOVERED})], tools_call=ticks)
        connection = await opened(wire)
        with pytest.raises(McpError) as failure:
            await connection.request("tools/call", {"name": "t"}, seconds=10.0)
        assert (failure.value.fault, failure.value.is_open) == ("timeout", True)

    assert in_time(main) == pytest.approx(11.0)


def test_no_progress_keeps_a_call_open_for_ever() -> None:
    async def main() -> None:
        ticks = [(float(n), progress(n)) for n in range(1, 500)]
        wire = MemoryWire(server_discover=[(0, {"result": DISCOVERED})], tools_call=ticks)
        connection = await opened(wire, call_seconds_most=60.0)
        with pytest.raises(McpError, match=r"the call took longer than 60 s"):
            await connection.request("tools/call", {"name": "t"}, seconds=10.0)
        await asyncio.sleep(0)
        assert methods(wire)[-1] == "notifications/cancelled"

    assert in_time(main) == pytest.approx(60.0)


def test_the_requests_that_open_a_connection_are_never_cancelled() -> None:
    async def main() -> None:
        wire = MemoryWire()
        with pytest.raises(McpError):
            await opened(wire)
        await asyncio.sleep(0)
        assert "notifications/cancelled" not in methods(wire)

    in_time(main)


def test_a_lost_connection_fails_all_calls_and_says_that_they_may_have_been_done() -> None:
    async def main() -> None:
        wire = MemoryWire(server_discover=[(0, {"result": DISCOVERED})])
        connection = await opened(wire)
        calls = [
            asyncio.create_task(connection.request("tools/call", {"name": "t"}, seconds=10.0))
            for _ in range(3)
        ]
        await asyncio.sleep(1.0)
        wire.lost("it ended")
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, McpError)
            assert (error.fault, error.is_open) == ("lost", True)
        with pytest.raises(McpError) as failure:
            await connection.request("tools/list", {}, seconds=10.0)
        assert not failure.value.is_open, "this one was never sent"

    in_time(main)


def test_messages_that_mean_nothing_are_dropped() -> None:
    async def main() -> None:
        wire = MemoryWire(
            server_discover=[(0, {"result": DISCOVERED})],
            tools_call=[(1.0, {"result": {"ok": True}})],
        )
        connection = await opened(wire)
        task = asyncio.create_task(connection.request("tools/call", {"name": "t"}, seconds=10.0))
        await asyncio.sleep(0.1)
        n = len(wire.sent)
        for odd in (
            None,
            5,
            "x",
            [],
            [[[]]],
            {},
            {"id": 2},
            {"method": 5},
            {"id": {}, "method": "ping"},
            {"result": 1},
        ):
            if odd != {"id": 2}:
                assert wire.receive(odd) is False
        wire.receive(
            {"method": "notifications/progress", "params": {"progressToken": [], "progress": "x"}}
        )
        assert len(wire.sent) == n
        assert await task == {"ok": True}

    in_time(main)


def test_an_answer_without_a_result_is_an_error_and_a_batch_is_read() -> None:
    async def main() -> None:
        wire = MemoryWire(
            server_discover=[(0, {"result": DISCOVERED})], tools_call=[(1.0, {"result": [1, 2]})]
        )
        connection = await opened(wire)
        with pytest.raises(McpError, match="neither a result nor an error"):
            await connection.request("tools/call", {"name": "t"}, seconds=10.0)
        wire.on = {}
        task = asyncio.create_task(connection.request("tools/list", {}, seconds=10.0))
        await asyncio.sleep(0.1)
        assert wire.receive([{"method": "x"}, {"id": wire.sent[-1]["id"], "result": {"tools": []}}])
        assert await task == {"tools": []}

    in_time(main)
