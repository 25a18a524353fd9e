"""`retinue mcp login`: with a browser on this machine, with one elsewhere, and what of it reaches
agents, the store and the screen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retinue.testing import call
from tests.cli.private_home import private_home
from tests.tools.mcp.oauth_server import LoginServer

BROWSER = """#!{python}
import sys, urllib.request
urllib.request.urlopen(sys.argv[1]).read()
"""


@contextlib.contextmanager
def served(peer: LoginServer) -> Iterator[str]:
    """The address of a server that runs in a thread."""
    ready, loop, leave = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    address: list[str] = []

    async def main() -> None:
        async with peer.serving() as url:
            address.append(url)
            ready.set()
            await leave.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    ready.wait()
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(leave.set)
        thread.join()
        loop.close()


def caller(request: Any) -> Any:
    results = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
    if results:
        return f"It said {results[-1].text}"
    has_tool = any(tool.name == "mcp__web__echo" for tool in request.tools)
    return call("mcp__web__echo") if has_tool else "no tool"


def without_following(url: str) -> str:
    """Where the browser of a person would be sent."""

    class Stays(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    try:
        urllib.request.build_opener(Stays).open(url)
    except urllib.error.HTTPError as error:
        return str(error.headers["Location"])
    raise AssertionError("no redirect")


def test_a_login_in_a_browser_gives_agents_the_tools_of_the_server(tmp_path: Path) -> None:
    peer = LoginServer()
    with served(peer) as url, private_home(tmp_path, caller) as home:
        config = json.dumps({"mcpServers": {"web": {"url": url}}})
        arguments = ("run", "--mcp-config", config, "--yolo", "use it")
        assert home.ok(*arguments) == "no tool"
        listed = home.ok("mcp", "list", "--mcp-config", config)
        assert "run `retinue mcp login web`" in listed
        browser = tmp_path / "browser"
        browser.write_text(BROWSER.format(python=sys.executable))
        browser.chmod(0o700)
        home.env["BROWSER"] = f"{browser} %s"
        result = home.run("mcp", "login", "web", "--mcp-config", config)
        assert result.returncode == 0, result.stderr
        assert "Logged in to web, which offers 1 tools." in result.stderr
        text = home.ok(*arguments)  # by the host that could not use the server before
        assert text.startswith("It said called with")
        peer.tokens.clear()
        assert home.ok(*arguments).startswith("It said called with")
        paths = [path for path in home.folder.rglob("*") if path.is_file() and _has_token(path)]
        assert [path.name for path in paths] == ["logins.json"]
        assert paths[0].stat().st_mode & 0o777 == 0o600
        home.ok("mcp", "logout", "web", "--mcp-config", config)
        assert not _has_token(paths[0])
        assert (
            "There was no login" in home.run("mcp", "logout", "web", "--mcp-config", config).stderr
        )


def _has_token(path: Path) -> bool:
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        return b"access-token-" in data or b"refresh-token-" in data
    return False


def test_a_login_with_a_browser_on_another_machine(tmp_path: Path) -> None:
    peer = LoginServer()
    with served(peer) as url, private_home(tmp_path, caller) as home:
        config = json.dumps({"mcpServers": {"web": {"url": url}}})
        words = ("mcp", "login", "web", "--no-browser", "--mcp-config", config)
        with home.start(*words, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stderr is not None
            line = process.stderr.readline()
            answer = without_following(line.rpartition(" ")[2].strip())
            _, rest = process.communicate(f"{answer}\n")
        assert process.returncode == 0 and "Logged in to web" in rest, rest


def test_a_login_that_cannot_be_says_why(tmp_path: Path) -> None:
    with private_home(tmp_path, caller) as home:
        servers = {
            "near": {"command": "x"},
            "token": {
                "url": "https://a.test",
                "headers": {"Authorization": "Bearer some-configured-token"},
            },
        }
        config = json.dumps({"mcpServers": servers})
        for name, words in (("near", "no login"), ("token", "no login"), ("gone", "Unknown")):
            result = home.run("mcp", "login", name, "--mcp-config", config)
            assert result.returncode and words in result.stderr
