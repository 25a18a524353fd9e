"""The requests of a login, and what their answers mean (RFC 6749, 7591, 7636, 8707, 9207)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote_plus, urlencode, urlsplit

from retinue.core.value_base import Value
from retinue.formats.safe_text import reveal
from retinue.tools.mcp_client.oauth.auth_metadata import AuthorizationServer
from retinue.tools.mcp_client.protocol import McpError

METHODS = ("none", "client_secret_basic", "client_secret_post")
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")


class OAuthClient(Value):
    """Who we are to an authorization server."""

    id: str
    secret: str = ""
    method: str = "none"


class GrantedTokens(Value):
    access: str
    refresh: str = ""
    scope: str = ""


def client_method(server: AuthorizationServer, has_secret: bool, named: str = "") -> str:
    """How a client proves who it is: as its registration says, else the first way that
    the server knows."""
    supported = server.token_endpoint_auth_methods_supported or ("client_secret_basic", "none")
    methods = [one for one in METHODS if one in supported and (one == "none") != has_secret]
    if named in METHODS:
        return named
    return methods[0] if methods else "none"


def registration(server: AuthorizationServer, redirect_uri: str) -> dict[str, Any]:
    supported = server.token_endpoint_auth_methods_supported or ("none",)
    return {
        "client_name": "Retinue",
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": next((m for m in METHODS if m in supported), "none"),
    }


def registered(data: Mapping[str, Any], server: AuthorizationServer) -> OAuthClient:
    id, secret = data.get("client_id"), data.get("client_secret")
    if not isinstance(id, str) or not _TOKEN.fullmatch(id):
        raise McpError("auth", "the login server registered us without a client_id")
    has_secret = isinstance(secret, str) and bool(secret)
    method = client_method(server, has_secret, str(data.get("token_endpoint_auth_method")))
    return OAuthClient(id=id, secret=str(secret) if has_secret else "", method=method)


class AuthorizationRequest(Value):
    """An address for a person's browser, and what only we know of it."""

    url: str
    state: str
    verifier: str


def authorization_request(
    server: AuthorizationServer, client: OAuthClient, redirect_uri: str, resource: str, scope: str
) -> AuthorizationRequest:
    if "S256" not in server.code_challenge_methods_supported:
        raise McpError("auth", "its login server does not protect codes (PKCE), so it is not used")
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    fields = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        "resource": resource,
        **({"scope": scope} if scope else {}),
    }
    joint = "&" if urlsplit(server.authorization_endpoint).query else "?"
    url = f"{server.authorization_endpoint}{joint}{urlencode(fields)}"
    return AuthorizationRequest(url=url, state=state, verifier=verifier)


def code_of(answer: str, state: str, server: AuthorizationServer) -> str:
    """The code in the address that the browser was sent back to. It must belong to this login, and
    come from the server that was asked: else the answer to another login could be taken for it."""
    try:
        fields = parse_qs(urlsplit(answer).query, max_num_fields=50)
    except ValueError:
        fields = {}
    one = {name: values[0] for name, values in fields.items() if len(values) == 1}
    if not hmac.compare_digest(one.get("state", "").encode(), state.encode()):
        raise McpError("auth", "the browser came back with the answer to another login")
    is_issued = "iss" in fields or server.authorization_response_iss_parameter_supported
    if is_issued and one.get("iss") != server.issuer:
        raise McpError("auth", "the browser came back from another login server")
    if "error" in one:
        words = one.get("error_description") or one["error"]
        raise McpError("auth", f"the login was refused: {reveal(words, keep='')[:300]}")
    if not one.get("code"):
        raise McpError("auth", "the browser came back without a code")
    return one["code"]


def token_request(client: OAuthClient, fields: Mapping[str, str]) -> tuple[dict[str, str], bytes]:
    """Headers and body."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    body = dict(fields)
    if client.method == "client_secret_basic":
        pair = f"{quote_plus(client.id)}:{quote_plus(client.secret)}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        body["client_id"] = client.id
        body |= {"client_secret": client.secret} if client.method == "client_secret_post" else {}
    return headers, urlencode(body).encode()


def granted(data: Mapping[str, Any], default_scope: str) -> GrantedTokens:
    """Tokens that can be used as they are; `default_scope` is theirs if the server names
    none."""
    access, refresh, scope = (data.get(k) for k in ("access_token", "refresh_token", "scope"))
    if str(data.get("token_type", "")).lower() != "bearer":
        raise McpError("auth", "its login server gives another kind of token than bearer")
    if not isinstance(access, str) or not _TOKEN.fullmatch(access):
        raise McpError("auth", "its login server gave no token that can be used")
    is_lasting = isinstance(refresh, str) and _TOKEN.fullmatch(refresh)
    return GrantedTokens(
        access=access,
        refresh=str(refresh) if is_lasting else "",
        scope=scope[:2_000] if isinstance(scope, str) else default_scope,
    )
