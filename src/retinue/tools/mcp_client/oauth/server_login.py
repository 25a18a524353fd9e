"""The login to one server: which token its requests carry, and what happens when the server wants
another one. Without a browser a token is renewed, and otherwise an error says what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from msgspec.structs import replace

from retinue.core.redaction import Redactor
from retinue.formats.safe_text import one_line, reveal
from retinue.tools.mcp_client.oauth import auth_requests as requests
from retinue.tools.mcp_client.oauth.auth_challenge import AuthChallenge
from retinue.tools.mcp_client.oauth.auth_fetch import Fetch
from retinue.tools.mcp_client.oauth.auth_metadata import (
    AuthorizationServer,
    ResourceMetadata,
    authorization_server_of,
    check_address,
    resource_of,
    resource_urls,
    server_urls,
    wanted_scope,
)
from retinue.tools.mcp_client.oauth.login_file import LoginFile, LoginRecord
from retinue.tools.mcp_client.protocol import McpError
from retinue.tools.mcp_client.server_config import ServerConfig


class BrowserVisit(Protocol):
    """A person's browser. `redirect_uri` is where a login sends it back to."""

    redirect_uri: str

    async def go(self, url: str, state: str) -> str:
        """Open an address; the one it was sent back to, with this `state`."""


Visit = Callable[[int], AbstractAsyncContextManager[BrowserVisit]]
"""Takes the port to be sent back to; 0 is any."""


class ServerLogin:
    """`visit` is how a person logs in; without it only what needs no person is done."""

    def __init__(
        self,
        config: ServerConfig,
        logins: LoginFile,
        *,
        environ: Mapping[str, str],
        redactor: Redactor,
        visit: Visit | None = None,
    ) -> None:
        self._config, self._logins, self._visit = config, logins, visit
        self._fetch, self._redactor = Fetch(environ), redactor
        self._used = ""

    def token(self) -> str:
        """What the next request carries, "" before the first login."""
        record = self._logins.record(self._config.url)
        self._learn(record)
        self._used = record.access
        return record.access

    def has_news(self) -> bool:
        """Whether someone has logged in since the last request."""
        return self._logins.record(self._config.url).access not in ("", self._used)

    async def renew(self, challenge: AuthChallenge, token_sent: str) -> None:
        """Get a token that may be enough, after one that was not. McpError if there is none."""
        url = self._config.url
        async with self._logins.turn(url):
            record = self._logins.record(url)
            if record.access not in ("", token_sent):
                return
            is_too_little = challenge.error == "insufficient_scope"
            if not is_too_little and record.refresh and await self._refreshed(record):
                return
            can_ask = self._visit is not None or self._config.oauth.client_secret
            if can_ask:
                await self._log_in(challenge, record)
                return
            named = challenge.scope.split()
            scope = " ".join(dict.fromkeys([*record.scope.split(), *named]))
            if is_too_little and record.wanted != scope:
                self._logins.keep(url, replace(record, wanted=scope))
            why = "more allowed (HTTP 403)" if is_too_little else "a login (HTTP 401)"
            raise self._needs_person(f"the server wants {why}")

    def _needs_person(self, why: str) -> McpError:
        name = one_line(self._config.name, 100)
        way = f"run `retinue mcp login {name}`, or check the token in its headers"
        return McpError("auth", f"{why}: {way}")

    async def log_in(self) -> None:
        """Log in although the server has not asked for it."""
        async with self._logins.turn(self._config.url):
            await self._log_in(AuthChallenge(), self._logins.record(self._config.url))

    async def _refreshed(self, record: LoginRecord) -> bool:
        client = record.client
        if client is None or not record.token_endpoint:
            return False
        fields = {
            "grant_type": "refresh_token",
            "refresh_token": record.refresh,
            "resource": record.resource,
        }
        status, answer = await self._posted(record.token_endpoint, client, fields)
        if status >= 500 or status == 429:
            raise McpError("auth", f"its login server failed to renew the login (HTTP {status})")
        if status != 200:
            return False
        new = requests.granted(answer, record.scope)
        renewal = replace(
            record, access=new.access, refresh=new.refresh or record.refresh, scope=new.scope
        )
        self._keep(renewal)
        return True

    async def _log_in(self, challenge: AuthChallenge, record: LoginRecord) -> None:
        resource = await self._resource(challenge)
        issuer = resource.authorization_servers[0]
        settings = self._config.oauth
        expected = settings.issuer or (record.issuer if settings.client_secret else "")
        if expected and expected != issuer:
            raise McpError(
                "auth",
                f"it names another login server than before ({reveal(issuer, keep='')[:200]}), "
                "which does not get the configured secret",
            )
        server = await self._server(issuer)
        more = (settings.scope, record.wanted)
        is_step = challenge.error == "insufficient_scope"
        scope = wanted_scope(challenge, resource, server, *more, record.scope if is_step else "")
        if settings.client_secret and "authorization_code" not in server.grant_types_supported:
            client = self._given(server)
            fields = {"grant_type": "client_credentials", "resource": resource.resource}
            fields |= {"scope": scope} if scope else {}
        else:
            client, fields = await self._authorized(server, resource, scope)
        new = await self._tokens(server, client, fields, scope)
        self._keep(
            LoginRecord(
                access=new.access,
                refresh=new.refresh,
                scope=new.scope,
                resource=resource.resource,
                issuer=issuer,
                token_endpoint=server.token_endpoint,
                client=client,
            )
        )

    async def _authorized(
        self, server: AuthorizationServer, resource: ResourceMetadata, scope: str
    ) -> tuple[requests.OAuthClient, dict[str, str]]:
        """The client that a person has allowed, and what it exchanges for a token."""
        if self._visit is None:
            raise self._needs_person("the server wants a login")
        if not server.authorization_endpoint:
            raise McpError("auth", "its login server has no page for people to log in")
        async with self._visit(self._config.oauth.port) as browser:
            uri = browser.redirect_uri
            client = self._given(server) or await self._registered(server, uri)
            request = requests.authorization_request(server, client, uri, resource.resource, scope)
            code = requests.code_of(
                await browser.go(request.url, request.state), request.state, server
            )
        return client, {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": uri,
            "code_verifier": request.verifier,
            "resource": resource.resource,
        }

    def _given(self, server: AuthorizationServer) -> requests.OAuthClient | None:
        """Who the configuration says that we are."""
        settings = self._config.oauth
        if not settings.client_id:
            return None
        method = requests.client_method(server, bool(settings.client_secret))
        return requests.OAuthClient(
            id=settings.client_id, secret=settings.client_secret, method=method
        )

    async def _registered(self, server: AuthorizationServer, uri: str) -> requests.OAuthClient:
        if not server.registration_endpoint:
            raise McpError(
                "auth",
                "its login server registers no clients. Register Retinue there with a person's "
                'help, and write "oauth": {"clientId": ...} into the server\'s configuration',
            )
        body = requests.registration(server, uri)
        status, answer = await self._fetch.json("POST", server.registration_endpoint, body=body)
        if status not in (200, 201):
            raise McpError("auth", f"its login server refused to register us (HTTP {status})")
        return requests.registered(answer, server)

    async def _tokens(
        self,
        server: AuthorizationServer,
        client: requests.OAuthClient | None,
        fields: Mapping[str, str],
        scope: str,
    ) -> requests.GrantedTokens:
        if client is None:
            raise McpError("auth", 'the configuration has no "clientId" beside its secret')
        status, answer = await self._posted(server.token_endpoint, client, fields)
        if status != 200:
            words = reveal(str(answer.get("error_description") or answer.get("error")), keep="")
            raise McpError("auth", f"its login server gave no token (HTTP {status}): {words[:300]}")
        return requests.granted(answer, scope)

    async def _posted(
        self, url: str, client: requests.OAuthClient, fields: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        headers, body = requests.token_request(client, fields)
        return await self._fetch.json("POST", url, headers, body)

    async def _resource(self, challenge: AuthChallenge) -> ResourceMetadata:
        """How the server wants people to log in. Servers of before 2025-06 are their own
        authorization servers, and do not say so."""
        url = self._config.url
        for place in resource_urls(url, challenge):
            status, data = await self._fetch.json("GET", place)
            if status == 200:
                metadata = resource_of(data, url)
                if metadata.authorization_servers:
                    check_address(metadata.authorization_servers[0], url)
                    return metadata
        root = urlunsplit((*urlsplit(url)[:2], "", "", ""))
        return ResourceMetadata(resource=url, authorization_servers=(root,))

    async def _server(self, issuer: str) -> AuthorizationServer:
        for place in server_urls(issuer):
            status, data = await self._fetch.json("GET", place)
            if status == 200:
                return authorization_server_of(data, issuer, self._config.url)
        raise McpError("auth", f"there is no login server at {reveal(issuer, keep='')[:200]}")

    def _keep(self, record: LoginRecord) -> None:
        self._learn(record)
        self._logins.keep(self._config.url, record)

    def _learn(self, record: LoginRecord) -> None:
        secret = record.client.secret if record.client is not None else ""
        name = self._config.name
        values = {"token": record.access, "refresh": record.refresh, "client": secret}
        self._redactor.learn({f"{name} {k}": v for k, v in values.items() if v})
