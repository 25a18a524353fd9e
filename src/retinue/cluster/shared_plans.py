"""The plans from which agents are built, shared by all nodes: a run started on one node continues
on another."""

from __future__ import annotations

from retinue.store.postgres.connections import connect


class SharedPlans:
    """By their stamps; a plan never changes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._known: set[str] = set()

    def put(self, stamp: str, body: bytes) -> None:
        if stamp in self._known:
            return
        with connect(self._url) as db:
            db.execute(
                "insert into plans (stamp, body) values (%s, %b) on conflict do nothing",
                (stamp, body),
            )
        self._known.add(stamp)

    def get(self, stamp: str) -> bytes | None:
        with connect(self._url) as db:
            row = db.execute("select body from plans where stamp = %s", (stamp,)).fetchone()
        return None if row is None else bytes(row[0])
