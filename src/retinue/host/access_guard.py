"""The guard around the whole application: checks host name, origin, token and the amount a client
sends. What is inside is never reached without it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl, urlencode

from retinue.host.identity import IDENTITY, Identity
from retinue.host.keyring import COOKIE, OWN, SESSION_SECONDS, Keyring
from retinue.host.problem_documents import MEDIA, HttpProblem, body_at, problem_of
from retinue.host.request_limits import LimitedBody, RequestLimits, TokenBuckets, check_size
from retinue.host.server_events import encode
from retinue.host.socket_peer import is_other_user

log = logging.getLogger("retinue.access")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE = ("GET", "HEAD", "OPTIONS")
LONGEST_NUMBER = 19
"""Digits: the time to read a number grows with the square of them."""
BEHALF = "retinue-user"
"""A header with the user whose runs a request is about."""
USER = re.compile(r"[\x21-\x7e]{1,200}")
ONCE = ("host", "origin", "authorization", "content-length", BEHALF)
WHO = (
    "The token of this host is missing or wrong, so nothing was done. Send it as `Authorization: "
    "Bearer TOKEN`."
)
SIGN_IN = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>Not signed in \xc2\xb7 Retinue</title>
<h1>This browser is not signed in</h1>
<p>An address with a code lets one browser in, once, within five minutes.
<p>Run <code>retinue dashboard</code> in the project's folder: it opens a new one.
"""
OTHER = (
    "This address is for a browser of the user who runs the host. For one that any browser can "
    "use, run `retinue dashboard --no-open`."
)
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'"),
)


class AccessGuard:
    """Lets requests through that name one of `hosts` and show something of the `keyring`. Requests
    over a Unix socket are not counted."""

    def __init__(
        self,
        app: Any,
        keyring: Keyring,
        *,
        hosts: Iterable[str] = (),
        limits: RequestLimits | None = None,
    ) -> None:
        self._app, self.keyring = app, keyring
        self._limits = limits or RequestLimits()
        self._hosts = LOOPBACK | {name.lower() for name in hosts}
        rate, fails = self._limits.per_second, self._limits.failures_per_second
        self._requests = TokenBuckets(rate, self._limits.burst)
        self._failures = TokenBuckets(fails, self._limits.failures_burst)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        body = LimitedBody(receive, self._limits)
        answer = GuardedAnswer(scope, send)
        try:
            headers = _headers(scope)
            answer.body = body if _has_body(headers) else None
            host = self._check_host(headers)
            _check_origin(headers, host)
            code = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("code")
            if code is not None and scope["method"] == "GET":
                await self._exchange(scope, code, answer)
                return
            who = on_behalf(self._identify(scope, headers), headers)
            answer.who = who.name
            self._check_rate(scope, who)
            _check_length(headers, self._limits)
            await self._app({**scope, IDENTITY: who}, body, answer.send)
        except HttpProblem as error:
            await answer.problem(error)
        finally:
            answer.log()

    def _check_host(self, headers: dict[str, str]) -> str:
        """A page of another site can have its name lead to this machine: what it asks for then
        bears that name."""
        host = headers.get("host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name not in self._hosts:
            raise HttpProblem(421, f"{name or 'Nothing'} is not a name of this host.")
        return host

    def _identify(self, scope: Any, headers: dict[str, str]) -> Identity:
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            identity = self.keyring.of_token(token.strip())
        else:
            identity = self._of_cookie(scope, headers)
        if identity is None:
            self._refuse(scope)
        assert identity is not None
        return identity

    def _of_cookie(self, scope: Any, headers: dict[str, str]) -> Identity | None:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return None
        identity = self.keyring.of_cookie(cookie.value) if cookie is not None else None
        if cookie is not None and cookie.value.startswith(OWN) and _is_other_user(scope):
            return None
        if identity is not None and scope["method"] not in SAFE and "origin" not in headers:
            raise HttpProblem(
                403, "A request with a cookie that changes something needs an Origin."
            )
        return identity

    def _refuse(self, scope: Any) -> None:
        client = scope.get("client")
        wait = self._failures.take(client[0]) if client else 0.0
        if wait:
            raise _too_many(wait)
        raise HttpProblem(401, WHO, {"www-authenticate": "Bearer"})

    def _check_rate(self, scope: Any, who: Identity) -> None:
        if scope.get("client") and (wait := self._requests.take(who.name)):
            raise _too_many(wait)

    async def _exchange(self, scope: Any, code: str, answer: GuardedAnswer) -> None:
        """A code in an address becomes a cookie, and the address loses it."""
        if self.keyring.is_for_own_user(code) and _is_other_user(scope):
            raise HttpProblem(403, OTHER)
        cookie = self.keyring.exchange(code)
        if cookie is None:
            self._refuse(scope)
        query = [
            (k, v) for k, v in parse_qsl(scope["query_string"].decode("latin-1")) if k != "code"
        ]
        path = scope.get("raw_path", b"/").decode("latin-1") or "/"
        place = "/" + path.lstrip("/\\") + (f"?{urlencode(query)}" if query else "")
        flags = "; Secure" if scope.get("scheme") == "https" else ""
        value = (
            f"{COOKIE}={cookie}; Path=/; Max-Age={int(SESSION_SECONDS)}; HttpOnly; "
            f"SameSite=Strict{flags}"
        )
        headers = [(b"location", place.encode("latin-1")), (b"set-cookie", value.encode())]
        await answer.whole(303, headers, b"")


class GuardedAnswer:
    """An answer on its way out: with the headers that all of them have, and for the access log."""

    def __init__(self, scope: Any, send: Callable[[Any], Any]) -> None:
        self._scope, self._send = scope, send
        self._since, self._status = perf_counter(), 0
        self.who = "-"
        self.body: LimitedBody | None = None

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            present = {name.lower() for name, _ in message.get("headers", ())}
            more = [pair for pair in HEADERS if pair[0] not in present]
            if self.body is not None:
                await self.body.drain()
            if self.body is not None and not self.body.is_whole:
                more.append((b"connection", b"close"))  # what is left of it is not another request
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await self._send(message)

    async def whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        length = (b"content-length", str(len(body)).encode())
        policy = (b"cache-control", b"no-store")
        start = {"type": "http.response.start", "status": status}
        await self.send({**start, "headers": [*headers, length, policy]})
        await self.send({"type": "http.response.body", "body": body})

    async def problem(self, error: HttpProblem) -> None:
        if self._status:
            return
        headers = [(k.encode(), v.encode()) for k, v in error.headers.items()]
        if error.status == 401 and _is_browser(self._scope):
            media, body = b"text/html; charset=utf-8", SIGN_IN
        else:
            media, body = MEDIA.encode(), encode(body_at(self._scope["path"], problem_of(error)))
        await self.whole(error.status, [(b"content-type", media), *headers], body)

    def log(self) -> None:
        """Without the query and without headers: secrets may be in them."""
        ms = (perf_counter() - self._since) * 1000
        path = self._scope["path"].encode("ascii", "backslashreplace").decode()
        log.info("%s %s %s %d %.0f ms", self.who, self._scope["method"], path, self._status, ms)


def _is_browser(scope: Any) -> bool:
    """Whether a person opens an address, and reads the answer."""
    accepted = dict(scope["headers"]).get(b"accept", b"")
    return scope["method"] == "GET" and bytes(accepted).startswith(b"text/html")


def on_behalf(who: Identity, headers: dict[str, str]) -> Identity:
    """An admin may work for one user, and then sees and starts only that user's runs."""
    user = headers.get(BEHALF)
    if user is None:
        return who
    who.need("admin", "To work on behalf of a user")
    if who.user not in ("", user) or not USER.fullmatch(user):
        raise HttpProblem(403, f"This token cannot work on behalf of {user[:80]!r}.")
    return Identity(f"{who.name} for {user}", who.scopes, user)


def _headers(scope: Any) -> dict[str, str]:
    """By lower-case names. What must be there once is refused when it is there twice."""
    values: dict[str, str] = {}
    for raw_name, value in scope["headers"]:
        name = raw_name.decode("latin-1").lower()
        if name in ONCE and name in values:
            raise HttpProblem(400, f"The header {name} was sent twice.")
        text = value.decode("latin-1")
        values[name] = f"{values[name]}; {text}" if name in values and name == "cookie" else text
    return values


def _check_origin(headers: dict[str, str], host: str) -> None:
    """No page of another site gets anything: there is no CORS, and what a browser says of where a
    request comes from must be this host."""
    origin = headers.get("origin")
    is_foreign = origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}")
    if is_foreign or headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        raise HttpProblem(403, "This request comes from a page of another site.")


def _is_other_user(scope: Any) -> bool:
    return is_other_user(scope.get("client"), scope.get("server"))


def _has_body(headers: dict[str, str]) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _check_length(headers: dict[str, str], limits: RequestLimits) -> None:
    length = headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > LONGEST_NUMBER:
        raise HttpProblem(400, "Content-Length is not a number.")
    check_size(int(length), limits)


def _too_many(wait: float) -> HttpProblem:
    seconds = max(1, round(wait))
    return HttpProblem(
        429, f"Too many requests. Try again in {seconds} s.", {"retry-after": str(seconds)}
    )
