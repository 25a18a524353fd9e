"""A rule about a path holds for the file that it leads to, and for every tool that could get at
it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tools.builtin.file_tool_support import Desk, tree

PATCH = """*** Begin Patch
*** Update File: {path}
@@
-secret
+public
*** End Patch
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    tree(tmp_path, {"keys/.env": "secret\n", "a.txt": "secret\n"})
    os.symlink("keys/.env", tmp_path / "innocent.txt")
    os.symlink("keys", tmp_path / "k")
    return Desk(tmp_path, rules=("deny: read(**/.env)", "deny: write(**/.env)"))


@pytest.mark.parametrize("path", ["keys/.env", "innocent.txt", "k/.env", "./keys//.env"])
def test_it_is_neither_read_nor_written_by_any_name(desk: Desk, path: str) -> None:
    assert "cannot be used: rule 'deny: read(**/.env)'" in desk.no("read", path=path)
    assert "cannot be used: rule 'deny: write(**/.env)'" in desk.no("write", path=path, content="x")
    assert "cannot be used: rule 'deny: " in desk.no("edit", path=path, old="secret", new="x")
    assert "cannot be used: rule 'deny: write(**/.env)'" in desk.no(
        "edit", patch=PATCH.format(path=path)
    )
    assert "secret" not in desk.no("search", pattern="secret", path=path)
    assert (desk.root / "keys" / ".env").read_text() == "secret\n"


def test_a_search_of_the_tree_passes_it_over(desk: Desk) -> None:
    assert desk.ok("search", pattern="secret") == "a.txt:1:secret"


def test_another_file_is_not_concerned(desk: Desk) -> None:
    assert "secret" in desk.ok("read", path="a.txt")
    desk.ok("edit", path="a.txt", old="secret", new="public")
