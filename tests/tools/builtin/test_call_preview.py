"""What a call would do is told by the code that would do it: the same as what then happens, and
nothing is changed by looking."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.redaction import Redactor
from retinue.tools.builtin.change_diff import MOST_LINES, change_diff
from retinue.tools.builtin.shell import ShellTool
from retinue.tools.call_preview import CallPreview
from tests.tools.builtin.file_tool_support import TOOLS, Desk, a_caller, tree


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    tree(tmp_path, {"a.py": "class A:\n    def one(self):\n        return 1\n", "b.txt": "b\n"})
    return Desk(tmp_path)


def look(desk: Desk, name: str, **args: Any) -> CallPreview:
    before = {p: p.read_bytes() for p in desk.root.rglob("*") if p.is_file()}
    folders = {p for p in desk.root.rglob("*") if p.is_dir()}
    tool: Any = TOOLS[name]
    preview: CallPreview = asyncio.run(tool.look_ahead(a_caller(desk.root), args))
    assert {p: p.read_bytes() for p in desk.root.rglob("*") if p.is_file()} == before
    assert {p for p in desk.root.rglob("*") if p.is_dir()} == folders
    return preview


def test_an_edit_is_told_as_the_diff_that_it_will_be(desk: Desk) -> None:
    change = {"path": "a.py", "old": "return 1", "new": "return 2  # two"}
    (file,) = look(desk, "edit", **change).files
    assert (file.path, file.kind, file.added, file.removed) == ("a.py", "change", 1, 1)
    assert file.diff == (
        "@@ -1,3 +1,3 @@\n class A:\n     def one(self):\n-        return 1\n"
        "+        return 2  # two"
    )
    desk.ok("edit", **change)
    assert "return 2  # two" in (desk.root / "a.py").read_text()


def test_a_new_file_in_a_new_folder_is_told_and_not_made(desk: Desk) -> None:
    (file,) = look(desk, "write", path="new/deep/c.txt", content="one\ntwo\n").files
    assert (file.kind, file.added, file.removed) == ("create", 2, 0)
    assert file.diff == "@@ -0,0 +1,2 @@\n+one\n+two"
    assert not (desk.root / "new").exists()


def test_a_patch_is_told_file_by_file(desk: Desk) -> None:
    patch = (
        "*** Begin Patch\n*** Update File: a.py\n@@\n-        return 1\n+        return 3\n"
        "*** Add File: sub/n.txt\n+new\n*** Delete File: b.txt\n*** End Patch\n"
    )
    text = look(desk, "edit", patch=patch)
    assert [(f.path, f.kind, f.added, f.removed) for f in text.files] == [
        ("a.py", "change", 1, 1),
        ("sub/n.txt", "create", 1, 0),
        ("b.txt", "delete", 0, 1),
    ]


def test_how_a_call_would_fail_is_told_before_anybody_permits_it(desk: Desk) -> None:
    assert "`old` was not found" in look(desk, "edit", path="a.py", old="zzz", new="y").problem
    assert "it exists and has" in look(desk, "write", path="a.py", content="x").problem
    assert look(desk, "edit", path=5).problem.startswith("Expected `str`")


def test_secrets_are_not_in_it(desk: Desk) -> None:
    tree(desk.root, {"c.env": "KEY=sk-very-secret-value\nother=1\n"})
    caller = replace(a_caller(desk.root), redactor=Redactor({"KEY": "sk-very-secret-value"}))
    tool: Any = TOOLS["edit"]
    args = {"path": "c.env", "old": "other=1", "new": "other=2"}
    (file,) = asyncio.run(tool.look_ahead(caller, args)).files
    assert "sk-very" not in file.diff and "[redacted:KEY]" in file.diff


def test_a_long_diff_is_bounded_and_says_what_is_left_out() -> None:
    new = "\n".join(f"line {n}" for n in range(MOST_LINES + 500))
    diff = change_diff("", new)
    assert (diff.added, diff.removed) == (MOST_LINES + 500, 0)
    assert diff.n_hidden == 501 and len(diff.text.split("\n")) == MOST_LINES


def test_the_numbers_and_the_heading_of_each_place_are_those_of_the_file() -> None:
    lines = ["def first():", *(f"    a{n}" for n in range(20)), "def second():", "    b", "    c"]
    old = "\n".join(lines) + "\n"
    diff = change_diff(old, old.replace("    a3\n", "    A3\n").replace("    c\n", "    C\n"))
    heads = [line for line in diff.text.split("\n") if line.startswith("@@")]
    assert heads == ["@@ -3,5 +3,5 @@ def first():", "@@ -22,3 +22,3 @@ def first():"]


class Contained:
    """A sandbox that is only asked for its name."""

    name = "bubblewrap"


def test_a_command_is_told_with_what_would_be_enforced(tmp_path: Path) -> None:
    from retinue.tools.builtin.run_processes import Processes

    (tmp_path / "work" / "sub").mkdir(parents=True)
    processes = Processes(tmp_path / "state", sandbox=Contained())  # type: ignore[arg-type]
    caller = a_caller(tmp_path / "work")
    args = {"command": "make test", "cwd": "sub", "timeout_seconds": 600}
    command = asyncio.run(ShellTool(processes).look_ahead(caller, args)).command
    assert command is not None
    assert command.directory == str(tmp_path / "work" / "sub") and not command.network
    assert command.may_write == (str(tmp_path / "work"),) and command.stops_after_seconds == 600
    assert (command.sandbox, command.read_only) == ("bubblewrap", "")
    tool = ShellTool(processes, blocked_by=lambda caller: "another run writes there")
    shut = asyncio.run(tool.look_ahead(caller, args)).command
    assert shut is not None and shut.may_write == () and "another run" in shut.read_only
    out = asyncio.run(ShellTool(processes).look_ahead(caller, {"command": "ls", "cwd": "/etc"}))
    assert "outside of" in out.problem and out.command is None
