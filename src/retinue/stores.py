"""Stores that a program can choose. Most programs give `Retinue` a path and need nothing
from here."""

from retinue.store.base import Store
from retinue.store.memory import MemoryStore
from retinue.store.sqlite.sqlite_store import SqliteStore

__all__ = ["MemoryStore", "SqliteStore", "Store"]
