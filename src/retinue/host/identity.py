"""The client that makes a request, and its scopes."""

from __future__ import annotations

from dataclasses import dataclass

from retinue.host.operations import SCOPES, Scope
from retinue.host.problem_documents import HttpProblem


@dataclass(frozen=True)
class Identity:
    """`name` is for the access log. `user` is whose runs are seen, and who a new run belongs to; ""
    sees all."""

    name: str
    scopes: frozenset[str]
    user: str = ""

    def may(self, scope: Scope) -> bool:
        """`admin` includes every scope, and every other includes `read`."""
        return (
            scope in self.scopes
            or "admin" in self.scopes
            or (scope == "read" and bool(self.scopes))
        )

    def need(self, scope: Scope, what: str) -> None:
        if not self.may(scope):
            raise HttpProblem(403, f"{what} needs a token with the scope {scope!r}.")


OWNER = Identity("owner", frozenset(SCOPES))
"""A client that can read the files of the host's own user."""
IDENTITY = "retinue.identity"
"""Under this name a guard puts an `Identity` into the scope of a request."""
