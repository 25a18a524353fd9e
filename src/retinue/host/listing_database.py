"""The rows of a listing, from PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.host.listing import SELECT
from retinue.store.postgres.postgres_reader import PostgresReader

_VERSION = "select coalesce(max(seq), 0), (select count(*) from trees) from events"
_EXISTS = "select to_regclass('retinue_schema') is not null"
_WORDS = (("r.open = 1", "r.open"), ("s.run = r.n", "s.run = r.id"), ("%", "%%"), ("?", "%s"))


class DatabaseRows:
    """A database that is only looked at. One without our tables is empty."""

    def __init__(self, url: str) -> None:
        self._reader = PostgresReader(url, is_shared=True)
        self._reader.open()
        self._is_empty = not self._reader.all(_EXISTS)[0][0]

    def lines(self, tail: str, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        if self._is_empty:
            return [], []
        sql = f"{SELECT} {tail}"
        for sqlite, postgres in _WORDS:
            sql = sql.replace(sqlite, postgres)
        if " glob " in sql:
            sql = sql.replace(" glob ", " like ")
            args = [one.replace("*", "%") if isinstance(one, str) else one for one in args]
        return self._reader.all(sql, args), self._reader.all("select name, body from models")

    def version(self) -> int:
        return 0 if self._is_empty else hash(tuple(self._reader.all(_VERSION)[0]))

    def is_held(self) -> bool:
        return self._reader.is_held()

    def close(self) -> None:
        self._reader.close()
