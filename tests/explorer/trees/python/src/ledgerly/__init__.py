"""Bookkeeping in plain text."""

from ledgerly.model.entry import Entry

__all__ = ["Entry"]
