"""Logging in to a server: the whole way, a login that expires or is too small, and servers that
lie about where to log in."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from retinue.core.redaction import Redactor
from retinue.tools.mcp_client import McpError, McpServers, ServerConfig, read_servers
from retinue.tools.mcp_client.oauth.auth_challenge import challenge_of
from retinue.tools.mcp_client.oauth.auth_metadata import check_address, resource_urls, server_urls
from retinue.tools.mcp_client.oauth.browser_visit import on_loopback
from retinue.tools.mcp_client.oauth.login_file import LoginFile, LoginRecord
from retinue.tools.mcp_client.server_config import OAuthSettings
from tests.tools.mcp.client_support import call, servers
from tests.tools.mcp.oauth_server import LoginServer
from tests.waiting import SECONDS


class Person:
    """Allows everything, in a browser that follows no redirect."""

    redirect_uri = "http://127.0.0.1:8765/callback"

    async def go(self, url: str, state: str) -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, allow_redirects=False) as response,
        ):
            return response.headers["Location"]


@contextlib.asynccontextmanager
async def visit(port: int) -> AsyncIterator[Person]:
    yield Person()


def remote(url: str, **settings: Any) -> ServerConfig:
    return ServerConfig(
        name="web",
        kind="http",
        url=url,
        start_seconds=SECONDS,
        call_seconds=SECONDS,
        oauth=OAuthSettings(**settings),
    )


async def said(result: McpServers) -> str:
    return (await call(result, "mcp__web__echo")).text


def test_a_login_is_asked_for_once_kept_and_renewed(tmp_path: Path) -> None:
    async def main() -> None:
        peer, logins = LoginServer(), LoginFile(tmp_path / "kept" / "logins.json")
        async with peer.serving() as url:
            async with servers(remote(url), logins=logins) as result:
                (status,) = result.status()
                assert "retinue mcp login web" in status.reason and not result.tools()
                assert "/register" not in peer.paths()  # nobody is there to log in
                async with servers(remote(url), logins=logins, visit=visit) as theirs:
                    assert [tool.tool_name for tool in theirs.tools()] == ["echo"]
                await result.start_after_logins()
                assert (await said(result)).startswith("called with")
                peer.tokens.clear()  # it expires
                assert (await said(result)).startswith("called with")
                peer.tokens.clear()
                peer.refreshes.clear()  # and cannot be renewed
                assert "retinue mcp login web" in await said(result)
            assert peer.paths().count("/authorize") == 1
            question = dict(peer.asked)
            assert question["/register"]["application_type"] == "native"
            assert question["/authorize"]["resource"] == url == question["/token"]["resource"]
        assert os.stat(tmp_path / "kept" / "logins.json").st_mode & 0o777 == 0o600
        assert LoginFile(tmp_path / "kept" / "logins.json").forget(url)
        assert "token" not in (tmp_path / "kept" / "logins.json").read_text()

    asyncio.run(main())


def test_calls_in_parallel_renew_a_login_once() -> None:
    async def main() -> None:
        peer = LoginServer()
        async with peer.serving() as url, servers(remote(url), visit=visit) as result:
            peer.tokens.clear()
            texts = await asyncio.gather(*(said(result) for _ in range(20)))
            assert len(set(texts)) == 1 and texts[0].startswith("called with")
            kinds = [fields["grant_type"] for path, fields in peer.asked if path == "/token"]
            assert kinds == ["authorization_code", "refresh_token"]

    asyncio.run(main())


def test_what_a_login_lacks_is_asked_for_beside_what_it_has() -> None:
    async def main() -> None:
        peer, logins = LoginServer({"resource": {"scopes_supported": ["read"]}}), LoginFile()
        async with peer.serving() as url:
            async with servers(remote(url), logins=logins, visit=visit):
                pass
            peer.scope_of_calls = "write"
            async with servers(remote(url), logins=logins) as result:
                assert "wants more allowed" in await said(result)
            async with servers(remote(url), logins=logins, visit=visit) as theirs:
                await theirs.log_in("web")  # the server alone would not ask before a call
                assert (await said(theirs)).startswith("called with")
            scopes = [fields["scope"] for path, fields in peer.asked if path == "/authorize"]
            assert scopes[0] == "read" and set(scopes[-1].split()) == {"read", "write"}

    asyncio.run(main())


def test_a_server_that_is_never_satisfied_is_asked_a_few_times_only() -> None:
    async def main() -> None:
        peer = LoginServer({"token": {"access_token": "of-no-use"}})
        async with peer.serving() as url, servers(remote(url), visit=visit) as result:
            assert result.status()[0].state == "dead"
            assert peer.paths().count("/authorize") <= 3

    asyncio.run(main())


def test_a_long_login_does_not_start_the_old_handshake_beside_it() -> None:
    async def main() -> None:
        peer = LoginServer()

        @contextlib.asynccontextmanager
        async def slow(port: int) -> AsyncIterator[Person]:
            await asyncio.sleep(1.0)  # the client asks in the old way after 0.3 s of silence
            yield Person()

        async with peer.serving() as url, servers(remote(url), visit=slow) as result:
            assert result.status()[0].version == "2026-07-28"
            methods = {fields["method"] for path, fields in peer.asked if path == "/mcp"}
            assert "initialize" not in methods

    asyncio.run(main())


ELSEWHERE = "https://login.example.test"


@pytest.mark.parametrize(
    ("lies", "words", "n_authorized"),
    [
        ({"resource": {"resource": f"{ELSEWHERE}/mcp"}}, "for another server", 0),
        ({"resource": {"resource": 5}}, "cannot be used", 0),
        ({"resource": {"authorization_servers": ["http://login.example.test"]}}, "not used", 0),
        ({"resource": {"authorization_servers": ["file:///etc/passwd"]}}, "not used", 0),
        ({"resource": {"authorization_servers": ["https://a@login.example.test"]}}, "not used", 0),
        ({"server": {"issuer": ELSEWHERE}}, "says that it is", 0),
        ({"server": {"token_endpoint": "http://login.example.test/t"}}, "not used", 0),
        ({"server": {"authorization_endpoint": "javascript:alert(1)"}}, "not used", 0),
        ({"server": {"authorization_endpoint": "https://a.test/$(touch${IFS}x)`"}}, "not used", 0),
        ({"server": {"code_challenge_methods_supported": None}}, "PKCE", 0),
        ({"server": {"code_challenge_methods_supported": ["plain"]}}, "PKCE", 0),
        ({"server": {"registration_endpoint": None}}, "clientId", 0),
        ({"answer": {"state": "of-another-login"}}, "another login", 1),
        ({"answer": {"iss": ELSEWHERE}}, "another login server", 1),
        ({"answer": {"iss": None}}, "another login server", 1),
        ({"answer": {"error": "access_denied", "code": None}}, "access_denied", 1),
        ({"answer": {"code": None}}, "without a code", 1),
        ({"token": {"access_token": "two\r\nX-Header: lines"}}, "no token", 1),
        ({"token": {"access_token": ["a"]}}, "no token", 1),
        ({"token": {"token_type": "mac"}}, "another kind", 1),
    ],
)
def test_a_server_that_lies_about_its_login_gets_none(
    lies: dict[str, dict[str, Any]], words: str, n_authorized: int
) -> None:
    async def main() -> None:
        peer = LoginServer(lies)
        async with peer.serving() as url, servers(remote(url), visit=visit) as result:
            assert words in result.status()[0].reason
            assert peer.paths().count("/authorize") == n_authorized
            if "answer" in lies:
                assert "/token" not in peer.paths()
            assert not any(f.get("token") for path, f in peer.asked if path == "/mcp")

    asyncio.run(main())


def test_a_configured_secret_goes_to_one_login_server_only() -> None:
    async def main() -> None:
        peer, other, logins = LoginServer(), LoginServer(), LoginFile()
        settings = {"client_id": "ours", "client_secret": "our-client-secret"}
        async with peer.serving() as url, other.serving():
            async with servers(remote(url, **settings), logins=logins, visit=visit) as result:
                assert (await said(result)).startswith("called with")
            by = [fields["by"] for path, fields in peer.asked if path == "/token"]
            assert "/register" not in peer.paths() and by[0].startswith("Basic ")
            peer.lies["resource"] = {"authorization_servers": [other.url]}
            peer.tokens.clear()
            peer.refreshes.clear()
            async with servers(remote(url, **settings), logins=logins, visit=visit) as result:
                assert "another login server" in result.status()[0].reason
            assert other.asked == []

    asyncio.run(main())


def test_a_program_logs_in_with_its_secret_alone() -> None:
    async def main() -> None:
        peer = LoginServer({"server": {"grant_types_supported": ["client_credentials"]}})
        settings = {"client_id": "ours", "client_secret": "our-client-secret"}
        async with peer.serving() as url, servers(remote(url, **settings)) as result:
            assert (await said(result)).startswith("called with")
            assert "/authorize" not in peer.paths()

    asyncio.run(main())


def test_tokens_are_cleaned_from_what_the_server_says() -> None:
    async def main() -> None:
        peer, redactor = LoginServer(), Redactor()
        async with (
            peer.serving() as url,
            servers(remote(url), visit=visit, redactor=redactor) as result,
        ):
            text = await said(result)
            assert text.startswith("called with") and "access-token-" not in text

    asyncio.run(main())


def test_a_configured_token_is_used_as_it_is() -> None:
    value = {"authorization": "x"}
    config = ServerConfig(name="web", kind="http", url="https://a.test", headers=value)
    assert not config.may_log_in and not remote("https://a.test", is_off=True).may_log_in
    entry = {"url": "https://a.test", "oauth": {"clientId": "i", "scopes": ["a", "b"], "odd": 1}}
    (config,), complaints = read_servers([{"mcpServers": {"web": entry}}], {})
    assert config.oauth == OAuthSettings(client_id="i", scope="a b")
    assert [one.field for one in complaints] == ["oauth.odd"]
    for wrong in ({"clientId": 5}, {"callbackPort": "80"}, {"scopes": [5]}, "yes"):
        _, complaints = read_servers([{"mcpServers": {"web": {**entry, "oauth": wrong}}}], {})
        assert complaints[0].fatal


def test_the_page_for_the_browser_takes_the_answer_to_its_own_login_only() -> None:
    async def main() -> None:
        opened: list[str] = []
        async with on_loopback(opened.append)(0) as browser:
            going = asyncio.create_task(browser.go("https://a.test", "right"))
            await asyncio.sleep(0)
            async with aiohttp.ClientSession() as session:
                for query in (
                    "?state=wrong&code=1",
                    "",
                    "?state=&code=1",
                    "?code=1&" + "a=1&" * 99,
                ):
                    async with session.get(browser.redirect_uri + query) as response:
                        assert response.status == 404
                async with session.post(f"{browser.redirect_uri}?state=right") as response:
                    assert response.status == 404
                _, writer = await asyncio.open_connection("127.0.0.1", _port(browser.redirect_uri))
                writer.write(b"\xff" * 100_000)
                writer.close()
                assert not going.done()
                async with session.get(f"{browser.redirect_uri}?state=right&code=5") as response:
                    assert response.status == 200
            assert "code=5" in await going and opened == ["https://a.test"]

    asyncio.run(main())


def _port(uri: str) -> int:
    return int(uri.rpartition(":")[2].partition("/")[0])


@pytest.mark.parametrize(
    ("header", "scope", "metadata"),
    [
        ("Bearer", "", ""),
        ('Basic realm="a, Bearer b", bearer scope="x y"', "x y", ""),
        ('Bearer resource_metadata="https://a.test/m", scope=one', "one", "https://a.test/m"),
        ('Bearer scope="a\\"b c\x01 d d"', "d", ""),
        ("Basic realm=x", "", ""),
        ("Bearer " + "a=b, " * 100_000, "", ""),
    ],
)
def test_challenges_are_read_with_suspicion(header: str, scope: str, metadata: str) -> None:
    challenge = challenge_of([header])
    assert (challenge.scope, challenge.metadata_url) == (scope, metadata)


def test_a_server_is_described_at_its_own_address() -> None:
    empty = challenge_of([])
    assert resource_urls("https://a.test/x/mcp?k=1", empty) == (
        "https://a.test/.well-known/oauth-protected-resource/x/mcp",
        "https://a.test/.well-known/oauth-protected-resource",
    )
    elsewhere = challenge_of(['Bearer resource_metadata="https://b.test/m"'])
    with pytest.raises(McpError, match="another server"):
        resource_urls("https://a.test/mcp", elsewhere)
    assert server_urls("https://a.test/t")[0] == (
        "https://a.test/.well-known/oauth-authorization-server/t"
    )
    with pytest.raises(McpError):
        check_address("http://127.0.0.1:80/", "https://a.test")  # our own machine
    with pytest.raises(McpError):
        check_address("https://[::1", "https://a.test")


def test_a_file_of_logins_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    from retinue.errors import ConfigError

    file = tmp_path / "logins.json"
    LoginFile(file).keep("https://a.test", LoginRecord(access="a"))
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="writable by other users"):
        LoginFile(file).record("https://a.test")
