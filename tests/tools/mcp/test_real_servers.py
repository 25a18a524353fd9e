"""Servers that others have written: from npm, from PyPI, and one made with the official SDK."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.tools.mcp_client import McpServers, ServerConfig
from tests.needs import needs
from tests.tools.mcp.client_support import call, until
from tests.tools.mcp.npm import node_server, python_path

SDK = Path(__file__).with_name("sdk_server.py")

pytestmark = pytest.mark.timeout(200)  # the first run installs the servers


def a_port() -> int:
    with socket.socket() as result:
        result.bind(("127.0.0.1", 0))
        return int(result.getsockname()[1])


def is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def running(command: list[str], port: int, **env: str) -> Iterator[None]:
    process = subprocess.Popen(
        command, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        assert until(lambda: is_open(port), 40.0), "the server does not listen"
        yield
    finally:
        process.kill()
        process.wait()


@needs("node", "npm")
def test_the_filesystem_server_reads_and_writes_in_the_workspace_and_nowhere_else(
    tmp_path: Path,
) -> None:
    program = node_server("filesystem")
    (tmp_path / "a.txt").write_text("first\nsecond\n")
    config = ServerConfig(name="fs", command="node", args=(str(program), str(tmp_path)), trust=True)

    async def main() -> None:
        async with McpServers(
            [config], environ=os.environ, workspace=tmp_path, approvals_file=tmp_path / "pins.json"
        ) as servers:
            [status] = servers.status()
            assert (status.state, status.version) == ("ready", "2025-11-25"), status.reason
            assert (
                await call(servers, "mcp__fs__read_text_file", path=str(tmp_path / "a.txt"))
            ).text == "first\nsecond\n"
            result_text = await call(
                servers, "mcp__fs__write_file", path=str(tmp_path / "b.txt"), content="new"
            )
            assert not result_text.error
            assert (tmp_path / "b.txt").read_text() == "new"
            listed = await call(servers, "mcp__fs__list_directory", path=str(tmp_path))
            assert "[FILE] b.txt" in listed.text
            outside = await call(servers, "mcp__fs__read_text_file", path="/etc/passwd")
            assert outside.error
            assert "outside allowed directories" in outside.text
            assert (await call(servers, "mcp__fs__read_text_file")).error
            risks = {t.tool_name: (t.risk, t.restart) for t in servers.tools()}
            assert risks["read_text_file"] == ("read", "pure")
            assert risks["move_file"] == ("execute", "unsafe")

    asyncio.run(main())


@needs("node", "npm")
def test_the_everything_server_is_driven_over_its_pipes(tmp_path: Path) -> None:
    config = ServerConfig(
        name="all", command="node", args=(str(node_server("everything")), "stdio")
    )

    async def main() -> None:
        async with McpServers(
            [config], environ={**os.environ, "SECRET": "s3cret"}, workspace=tmp_path
        ) as servers:
            [status] = servers.status()
            assert status.state == "ready", status.reason
            assert (await call(servers, "mcp__all__echo", message="hi")).text == "Echo: hi"
            assert "is 5" in (await call(servers, "mcp__all__get-sum", a=2, b=3)).text
            picture = await call(servers, "mcp__all__get-tiny-image")
            assert base64.b64decode(picture.images[0].data).startswith(b"\x89PNG")
            links = await call(servers, "mcp__all__get-resource-links", count=2)
            assert links.text.count("[resource ") == 2
            weather = await call(servers, "mcp__all__get-structured-content", location="Chicago")
            assert weather.text.count("temperature") == 1
            assert "s3cret" not in (await call(servers, "mcp__all__get-env")).text
            assert tmp_path.as_uri() in (await call(servers, "mcp__all__get-roots-list")).text
            long = await call(
                servers, "mcp__all__trigger-long-running-operation", duration=0.2, steps=5
            )
            assert "completed" in long.text
            wrong = await call(servers, "mcp__all__get-sum", a="x")
            assert wrong.error

    asyncio.run(main())


@needs("node", "npm")
@pytest.mark.parametrize(
    ("mode", "kind", "path"), [("streamableHttp", "http", "/mcp"), ("sse", "sse", "/sse")]
)
def test_the_everything_server_is_driven_over_http(mode: str, kind: str, path: str) -> None:
    program, port = node_server("everything"), a_port()

    async def main() -> None:
        config = ServerConfig(name="all", kind=kind, url=f"http://127.0.0.1:{port}{path}")  # type: ignore[arg-type]
        async with McpServers([config]) as servers:
            [status] = servers.status()
            assert status.state == "ready", status.reason
            assert (await call(servers, "mcp__all__echo", message="hi")).text == "Echo: hi"
            assert len((await call(servers, "mcp__all__get-tiny-image")).images) == 1

    with running(["node", str(program), mode], port, PORT=str(port)):
        asyncio.run(main())


def test_a_server_from_pypi_tells_the_time() -> None:
    env = {"PYTHONPATH": str(python_path())}
    config = ServerConfig(
        name="time", command=sys.executable, args=("-m", "mcp_server_time"), env=env
    )

    async def main() -> None:
        async with McpServers([config], environ=os.environ) as servers:
            [status] = servers.status()
            assert (status.state, status.version) == ("ready", "2026-07-28"), status.reason
            now = await call(servers, "mcp__time__get_current_time", timezone="UTC")
            assert '"timezone": "UTC"' in now.text
            assert (await call(servers, "mcp__time__get_current_time", timezone="Nowhere")).error

    asyncio.run(main())


def test_the_official_sdk_is_understood_over_pipes_with_a_handshake() -> None:
    """(Without one it is what the server from PyPI is made with.)"""
    config = ServerConfig(name="sdk", command=sys.executable, args=(str(SDK), "stdio"), trust=True)

    async def main() -> None:
        servers = McpServers([config], environ=os.environ)
        servers._servers["sdk"]._era = "handshake"
        async with servers:
            assert servers.status()[0].version == "2025-11-25"
            assert (await call(servers, "mcp__sdk__add", a=2, b=3)).text == "5"
            assert (await call(servers, "mcp__sdk__slowly", n=2)).text == "done"
            assert (await call(servers, "mcp__sdk__fails")).error
            assert (await call(servers, "mcp__sdk__add", a="x", b=3)).error
            [add] = servers.resolve("sdk/add")
            assert (add.risk, add.restart) == ("read", "pure")

    asyncio.run(main())


def test_the_official_sdk_is_understood_over_http_in_both_eras() -> None:
    port = a_port()

    async def main() -> None:
        config = ServerConfig(name="sdk", kind="http", url=f"http://127.0.0.1:{port}/mcp")
        servers, old = McpServers([config]), McpServers([config])
        old._servers["sdk"]._era = "handshake"
        async with servers, old:
            assert [s.status()[0].version for s in (servers, old)] == ["2026-07-28", "2025-11-25"]
            for each in (servers, old):
                assert (await call(each, "mcp__sdk__add", a=2, b=3)).text == "5"
                assert (await call(each, "mcp__sdk__slowly", n=2)).text == "done"
                assert (await call(each, "mcp__sdk__fails")).error

    with running([sys.executable, str(SDK), "http", str(port)], port):
        asyncio.run(main())
