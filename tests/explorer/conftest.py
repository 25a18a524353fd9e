"""The trees are material, not tests; and what is kept between runs is kept for one test."""

from __future__ import annotations

from pathlib import Path

import pytest

collect_ignore_glob = ["trees/*"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder: Path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
