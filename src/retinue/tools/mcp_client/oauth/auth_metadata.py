"""Where a server and its authorization server describe themselves, and what of it is believed: a
document counts only for the address that it was found for."""

from __future__ import annotations

import re
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec

from retinue.core.value_base import Value
from retinue.tools.mcp_client.oauth.auth_challenge import AuthChallenge, scope_text
from retinue.tools.mcp_client.protocol import McpError
from retinue.tools.mcp_client.transports.http_client import origin, url_text

RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
Described = TypeVar("Described", bound=Value)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
MAX_ADDRESS = 4_000

_ADDRESS = re.compile(r"[\x21\x23-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e]+")


class ResourceMetadata(Value):
    """What a server says of itself (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] = ()


class AuthorizationServer(Value):
    """What an authorization server says of itself (RFC 8414)."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str = ""
    registration_endpoint: str = ""
    scopes_supported: tuple[str, ...] = ()
    grant_types_supported: tuple[str, ...] = ("authorization_code",)
    token_endpoint_auth_methods_supported: tuple[str, ...] = ()
    code_challenge_methods_supported: tuple[str, ...] = ()
    authorization_response_iss_parameter_supported: bool = False


def check_address(url: str, server: str) -> str:
    """An address that a server has named, if it may be used: encrypted, or on this machine when the
    server is too. The characters are those that a browser's command line cannot misread."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    is_near = parts.scheme == "http" and host in LOOPBACK and urlsplit(server).hostname in LOOPBACK
    is_plain = bool(_ADDRESS.fullmatch(url)) and len(url) <= MAX_ADDRESS
    is_bare = not (parts.username or parts.password or parts.fragment)
    if not (host and is_plain and is_bare and (parts.scheme == "https" or is_near)):
        raise McpError("auth", f"it names an address for the login that is not used: {url[:200]!r}")
    return url


def _beneath(url: str, well_known: str) -> str:
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, f"{well_known}{path}", "", ""))


def resource_urls(server: str, challenge: AuthChallenge) -> tuple[str, ...]:
    """Where the server may describe itself, in the order to ask. It cannot send us elsewhere."""
    if challenge.metadata_url:
        if origin(check_address(challenge.metadata_url, server)) != origin(server):
            raise McpError("auth", "it names another server to ask about its login")
        return (challenge.metadata_url,)
    root = urlunsplit((*urlsplit(server)[:2], "", "", ""))
    return tuple(dict.fromkeys((_beneath(server, RESOURCE), _beneath(root, RESOURCE))))


def server_urls(issuer: str) -> tuple[str, ...]:
    """Where an authorization server may describe itself, in the order to ask."""
    after = issuer.rstrip("/") + OPENID
    urls = (_beneath(issuer, SERVER), _beneath(issuer, OPENID), after)
    return tuple(dict.fromkeys(urls))


def resource_of(data: Any, server: str) -> ResourceMetadata:
    """McpError if it describes another server than the one that was asked."""
    metadata = _converted(data, ResourceMetadata)
    try:
        is_same = origin(metadata.resource) == origin(server)
        inside = urlsplit(metadata.resource).path.rstrip("/") + "/"
    except ValueError:
        is_same, inside = False, "/"
    if not is_same or not (urlsplit(server).path.rstrip("/") + "/").startswith(inside):
        raise McpError(
            "auth", f"its login is for another server ({url_text(metadata.resource)[:200]})"
        )
    return metadata


def authorization_server_of(data: Any, issuer: str, server: str) -> AuthorizationServer:
    """McpError if it is not who was asked, or cannot log anyone in safely."""
    metadata = _converted(data, AuthorizationServer)
    if metadata.issuer != issuer:
        raise McpError(
            "auth", f"the login server {issuer[:200]} says that it is {metadata.issuer[:200]!r}"
        )
    for url in (
        metadata.token_endpoint,
        *filter(None, (metadata.authorization_endpoint, metadata.registration_endpoint)),
    ):
        check_address(url, server)
    return metadata


def wanted_scope(
    challenge: AuthChallenge, resource: ResourceMetadata, server: AuthorizationServer, *more: str
) -> str:
    """What to ask for: what the server has just named, else all that it knows; `more` is what was
    granted before. A login that lasts is asked for where there is one."""
    named = challenge.scope.split() or resource.scopes_supported
    lasting = [one for one in server.scopes_supported if one == "offline_access"]
    before = [word for text in more for word in text.split()]
    return scope_text([*before, *named, *lasting])


def _converted(data: Any, kind: type[Described]) -> Described:
    fields = {k: v for k, v in data.items() if v is not None} if isinstance(data, dict) else data
    try:
        return msgspec.convert(fields, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise McpError("auth", f"what it says of its login cannot be used: {error}") from None
