"""Credentials of clients: tokens, one-time codes for browsers, and the cookies that replace them.
Only hashes are kept; those of the owner's cookies in a file too, so that a browser stays signed in
when the host is started again."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic

from retinue.host.identity import OWNER, Identity
from retinue.host.session_file import SessionFile

COOKIE = "retinue_session"
OWN = "own."
"""How a cookie begins that only connections of the host's own user may show. A browser sends it to
whatever listens on this machine, under every port."""
CODE_SECONDS = 300.0
SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 1_000


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True)
class TimedGrant:
    """The identity of a code or a cookie, and until when it is valid. `is_for_own_user`: other
    users of this machine may have read it."""

    identity: Identity
    until: float
    is_for_own_user: bool = False


@dataclass
class Keyring:
    """`tokens` are given once; codes and cookies come and go."""

    tokens: Iterable[tuple[str, Identity]] = ()
    clock: Callable[[], float] = monotonic
    _tokens: dict[bytes, Identity] = field(default_factory=dict, init=False, repr=False)
    _codes: dict[bytes, TimedGrant] = field(default_factory=dict, init=False, repr=False)
    _sessions: dict[bytes, TimedGrant] = field(default_factory=dict, init=False, repr=False)
    _file: SessionFile | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for token, identity in self.tokens:
            self.add(token, identity)
        self.tokens = ()

    def add(self, token: str, identity: Identity) -> None:
        self._tokens[_digest(token)] = identity

    def keep_sessions(self, file: SessionFile) -> None:
        """Let in who was signed in as the owner before, and remember who signs in from now on."""
        self._file = file
        for digest, seconds in file.seconds_left().items():
            self._sessions[digest] = TimedGrant(OWNER, self.clock() + seconds)

    def of_token(self, token: str) -> Identity | None:
        """Every token is compared, so that the time tells nothing of how much was right."""
        token_digest, owner = _digest(token), None
        for digest, identity in self._tokens.items():
            if hmac.compare_digest(digest, token_digest):
                owner = identity
        return owner

    def new_code(self, identity: Identity, *, is_for_own_user: bool = False) -> str:
        """A code that can be exchanged once, within five minutes."""
        self._forget_old()
        code, until = secrets.token_urlsafe(32), self.clock() + CODE_SECONDS
        self._codes[_digest(code)] = TimedGrant(identity, until, is_for_own_user)
        return code

    def is_for_own_user(self, code: str) -> bool:
        grant = self._codes.get(_digest(code))
        return grant is not None and grant.is_for_own_user

    def exchange(self, code: str) -> str | None:
        """The value of a cookie for a code, which is worth nothing from then on."""
        self._forget_old()
        grant = self._codes.pop(_digest(code), None)
        if grant is None:
            return None
        while len(self._sessions) >= MOST_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        cookie = f"{OWN if grant.is_for_own_user else ''}{secrets.token_urlsafe(32)}"
        self._sessions[_digest(cookie)] = TimedGrant(grant.identity, self.clock() + SESSION_SECONDS)
        if self._file is not None and grant.identity == OWNER:
            self._file.add(_digest(cookie), SESSION_SECONDS)
        return cookie

    def of_cookie(self, cookie: str) -> Identity | None:
        self._forget_old()
        grant = self._sessions.get(_digest(cookie))
        return None if grant is None else grant.identity

    def _forget_old(self) -> None:
        now = self.clock()
        for grants in (self._codes, self._sessions):
            for digest in [digest for digest, grant in grants.items() if grant.until < now]:
                del grants[digest]
