"""Accounts form a tree, written with colons."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    name: str

    @property
    def parent(self) -> "Account | None":
        head, colon, _ = self.name.rpartition(":")
        return Account(head) if colon else None
