"""The store in PostgreSQL: the contract, for the whole of it in one process."""

from __future__ import annotations

from pathlib import Path

from retinue.store.postgres.postgres_store import PostgresStore
from tests.contracts.store import StoreContract
from tests.postgres import fresh

_urls: dict[Path, str] = {}


def url_for(folder: Path) -> str:
    """Each folder has its own data."""
    if folder not in _urls:
        _urls[folder] = fresh()
    return _urls[folder]


class TestPostgres(StoreContract):
    def make(self, folder: Path) -> PostgresStore:
        return PostgresStore(url_for(folder), beside=str(folder / "notes"))
