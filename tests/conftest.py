"""For all tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: the address of a Unix socket has room for 107 bytes, and the names of tests and users are long."""
    return tmp_path_factory.mktemp("t")
