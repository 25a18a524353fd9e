"""Planted bugs: each must be found by the simulation within 2,500 seeds. This is the test of the
test.

A mutation replaces one snippet that stands exactly once in one file; when the file changes so that
it does not, the mutation has to be written again."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    kind: str = "pure"
    """On which of the two simulations it is to be found; on the engine's within 200 seeds."""
