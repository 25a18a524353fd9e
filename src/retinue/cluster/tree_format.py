"""Checks whether a worker can read a tree's log. Versions work in parallel while nodes are
replaced: a tree that a newer one has driven is not given to an older one that could not read
what was recorded since."""

from __future__ import annotations

FORMAT = 1
"""What this version records in the log of a tree. It grows with a version that records something
which the one before would not read."""
