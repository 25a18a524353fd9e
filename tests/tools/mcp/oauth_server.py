"""A server that wants a login, and its login server, on one port of loopback; each part of what
they say can be a lie."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

TOOL = {"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}


class LoginServer:
    """`lies` replaces fields of the documents `resource`, `server`, `token` and `answer`. `tokens`
    are those that count; `asked` is each request, with its fields."""

    def __init__(self, lies: dict[str, dict[str, Any]] | None = None) -> None:
        self.lies = lies or {}
        self.url = ""
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.tokens: set[str] = set()
        self.refreshes: set[str] = set()
        self.challenges: dict[str, str] = {}
        self.n = 0
        self.scope_of_calls = ""
        self.scopes: dict[str, str] = {}

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def told(self, what: str, **fields: Any) -> dict[str, Any]:
        merged = {**fields, **self.lies.get(what, {})}
        return {k: v for k, v in merged.items() if v is not None}

    async def mcp(self, request: web.Request) -> web.Response:
        body = await request.json()
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.asked.append(("/mcp", {"method": body["method"], "token": token}))
        if token not in self.tokens:
            header = 'Bearer error="invalid_token"' if token else "Bearer"
            return web.Response(status=401, headers={"WWW-Authenticate": header})
        is_enough = not self.scope_of_calls or self.scope_of_calls in self.scopes[token].split()
        if body["method"] == "tools/call" and not is_enough:
            header = f'Bearer error="insufficient_scope", scope="{self.scope_of_calls}"'
            return web.Response(status=403, headers={"WWW-Authenticate": header})
        results: dict[str, Any] = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
            "tools/list": {"tools": [TOOL]},
            "tools/call": {"content": [{"type": "text", "text": f"called with {token}"}]},
        }
        result = {**results[body["method"]], "resultType": "complete"}
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": result})

    async def resource(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, {}))
        return web.json_response(
            self.told("resource", resource=f"{self.url}/mcp", authorization_servers=[self.url])
        )

    async def about(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, {}))
        return web.json_response(
            self.told(
                "server",
                issuer=self.url,
                authorization_endpoint=f"{self.url}/authorize",
                token_endpoint=f"{self.url}/token",
                registration_endpoint=f"{self.url}/register",
                code_challenge_methods_supported=["S256"],
                token_endpoint_auth_methods_supported=["none", "client_secret_basic"],
                authorization_response_iss_parameter_supported=True,
                grant_types_supported=["authorization_code", "refresh_token"],
            )
        )

    async def register(self, request: web.Request) -> web.Response:
        self.asked.append(("/register", await request.json()))
        return web.json_response({"client_id": f"client-{self.n}"}, status=201)

    async def authorize(self, request: web.Request) -> web.Response:
        fields = dict(request.query)
        self.asked.append(("/authorize", fields))
        self.n += 1
        code = f"code-{self.n}"
        self.challenges[code] = fields["code_challenge"]
        self.scopes[code] = fields.get("scope", "")
        answer = self.told("answer", code=code, state=fields["state"], iss=self.url)
        raise web.HTTPFound(f"{fields['redirect_uri']}?{urlencode(answer)}")

    async def token(self, request: web.Request) -> web.Response:
        fields = {k: str(v) for k, v in (await request.post()).items()}
        self.asked.append(("/token", {**fields, "by": request.headers.get("Authorization", "")}))
        if fields["grant_type"] == "authorization_code":
            digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
            proof = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            is_right = self.challenges.pop(fields["code"], None) == proof
            scope = self.scopes.get(fields["code"], "")
        else:
            is_right = fields.get("refresh_token", "") in self.refreshes
            self.refreshes.discard(fields.get("refresh_token", ""))
            is_right |= fields["grant_type"] == "client_credentials"
            scope = ""
        if not is_right:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.n += 1
        access, refresh = f"access-token-{self.n:04}", f"refresh-token-{self.n:04}"
        self.tokens, self.scopes[access] = {access}, scope
        self.refreshes.add(refresh)
        return web.json_response(
            self.told("token", access_token=access, refresh_token=refresh, token_type="Bearer")
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """The address of the MCP server."""
        app = web.Application()
        app.router.add_post("/mcp", self.mcp)
        app.router.add_get("/.well-known/oauth-protected-resource/mcp", self.resource)
        app.router.add_get("/.well-known/oauth-authorization-server", self.about)
        app.router.add_post("/register", self.register)
        app.router.add_get("/authorize", self.authorize)
        app.router.add_post("/token", self.token)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield f"{self.url}/mcp"
        finally:
            await runner.cleanup()
