"""Helpers for the tests of amounts."""

from ledgerly.model.money import Money


def euros(n: int) -> Money:
    return Money(n * 100)
