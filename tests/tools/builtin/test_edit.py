"""`edit` and `write`: exact, whole, and able to tell after a restart what they had done."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from retinue.sandbox.atomic_write import SUFFIX, prefix
from tests.tools.builtin.file_tool_support import TOOLS, Desk, a_caller, tree


def sha(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    tree(tmp_path, {"a.py": "one\ntwo\nthree\ntwo\n"})
    return Desk(tmp_path)


def content(desk: Desk, name: str = "a.py") -> str:
    return (desk.root / name).read_bytes().decode()


def test_one_text_is_replaced_by_another(desk: Desk) -> None:
    text = desk.ok("edit", path="a.py", old="three", new="drei\nvier")
    assert content(desk) == "one\ntwo\ndrei\nvier\ntwo\n"
    assert text.startswith(
        f"Edited a.py: 5 lines, 22 bytes, sha256 {sha(content(desk))}\n@@ -1,4 +1,5 @@\n"
    )
    assert text.endswith(" one\n two\n-three\n+drei\n+vier\n two")


def test_what_stands_several_times_is_not_guessed(desk: Desk) -> None:
    text = desk.no("edit", path="a.py", old="two", new="zwei")
    assert "2 times, at lines 2, 4" in text
    assert content(desk) == "one\ntwo\nthree\ntwo\n"
    assert "Edited a.py 2 times" in desk.ok("edit", path="a.py", old="two", new="zwei", all=True)
    assert content(desk) == "one\nzwei\nthree\nzwei\n"


def test_line_numbers_are_right_for_texts_of_several_lines(desk: Desk) -> None:
    tree(desk.root, {"f": "x\na\nb\nx\na\nb\n" + "a\nb\n" * 30})
    assert "32 times, at lines 2, 5, 7, 9, 11" in desk.no("edit", path="f", old="a\nb", new="")


def test_what_is_not_there_is_answered_with_what_is_near(desk: Desk) -> None:
    tree(desk.root, {"f": "def total(items):\n\treturn sum(items)\n\n\ndef other():\n    pass\n"})
    spaces = desk.no("edit", path="f", old="def total(items):\n    return sum(items)", new="x")
    assert "Only spaces or tabs differ" in spaces
    assert "1\tdef total(items):\n2\t\treturn sum(items)" in spaces
    near = desk.no("edit", path="f", old="def totals(item):", new="x")
    assert "The nearest lines are:\n1\tdef total(items):" in near
    assert "Nothing in the file is similar" in desk.no(
        "edit", path="f", old="zzzzzzzzz qqqqq", new="x"
    )
    assert "file not found" in desk.no("edit", path="none", old="x", new="y")


def test_line_ends_and_encodings_survive(desk: Desk) -> None:
    tree(
        desk.root,
        {
            "crlf": b"a\r\nb\r\nc",
            "bom": b"\xef\xbb\xbfa\nb\n",
            "latin": b"caf\xe9\na\n",
            "utf16": "a\nb\n".encode("utf-16"),
            "mixed": b"a\r\nb\nc\r\n",
        },
    )
    desk.ok("edit", path="crlf", old="a\nb", new="x\ny\nz")
    desk.ok("edit", path="bom", old="a", new="x")
    desk.ok("edit", path="latin", old="a\n", new="x\n", all=True)
    desk.ok("edit", path="utf16", old="b", new="\u00e9")
    desk.ok("edit", path="mixed", old="b\nc", new="d")
    assert content(desk, "crlf") == "x\r\ny\r\nz\r\nc"
    assert (desk.root / "bom").read_bytes() == b"\xef\xbb\xbfx\nb\n"
    assert (desk.root / "latin").read_bytes() == b"caf\xe9\nx\n"
    assert (desk.root / "utf16").read_bytes().decode("utf-16") == "a\n\u00e9\n"
    assert (desk.root / "mixed").read_bytes() == b"a\r\nd\r\n"


def test_a_file_that_has_changed_is_left_alone(desk: Desk) -> None:
    digest = sha(content(desk))
    assert "changed" in desk.no("edit", path="a.py", old="one", new="x", expected_sha256="0" * 64)
    assert "changed" in desk.no("write", path="a.py", content="x", expected_sha256="0" * 64)
    assert "hexadecimal" in desk.no("edit", path="a.py", old="one", new="x", expected_sha256="yes")
    desk.ok("edit", path="a.py", old="one", new="eins", expected_sha256=digest[:16])
    assert content(desk).startswith("eins")


def test_confused_arguments_are_explained(desk: Desk) -> None:
    assert "`path` is missing" in desk.no("edit", old="a", new="b")
    assert "`old` is empty" in desk.no("edit", path="a.py", new="b")
    assert "the same" in desk.no("edit", path="a.py", old="b", new="b")
    assert "without path, old" in desk.no("edit", path="a.py", old="a", patch="x")
    assert "$.all" in desk.no("edit", path="a.py", old="a", new="b", all="yes")
    assert "unknown field `file`" in desk.no("edit", file="a.py")


def test_a_file_is_written_with_its_directories(desk: Desk) -> None:
    text = desk.ok("write", path="new/deep/f.txt", content="h\u00e9llo\n")
    assert content(desk, "new/deep/f.txt") == "h\u00e9llo\n"
    assert (
        text == f"Created new/deep/f.txt: 1 lines, 7 bytes, sha256 "
        f"{sha('h' + chr(233) + 'llo' + chr(10))}"
    )
    assert "this is a directory" in desk.no("write", path="new/", content="x")
    assert "directory" in desk.no("write", path="new", content="x")
    assert "not a directory" in desk.no("write", path="a.py/x", content="x")


def test_what_has_not_been_seen_is_not_overwritten(desk: Desk) -> None:
    texts = desk.no("write", path="a.py", content="mine\n")
    assert sha(content(desk)) in texts
    assert content(desk).startswith("one")
    text = desk.ok(
        "write", path="a.py", content="one\n2\nthree\ntwo\n", expected_sha256=sha(content(desk))
    )
    assert "-two\n+2" in text
    assert "has this content" in desk.ok("write", path="a.py", content="one\n2\nthree\ntwo\n")
    tree(desk.root, {"empty": ""})
    assert "Wrote empty" in desk.ok("write", path="empty", content="now\n")
    assert "file not found" in desk.no("write", path="gone", content="x", expected_sha256="0" * 64)
    assert not (desk.root / "gone").exists()


def test_the_mode_stays_and_nothing_is_left_beside(desk: Desk) -> None:
    (desk.root / "a.py").chmod(0o751)
    desk.ok("edit", path="a.py", old="one", new="x")
    assert stat.S_IMODE((desk.root / "a.py").stat().st_mode) == 0o751
    assert os.listdir(desk.root) == ["a.py"]


def test_a_link_is_kept_and_its_file_changed(desk: Desk) -> None:
    (desk.root / "link").symlink_to("a.py")
    desk.ok("edit", path="link", old="one", new="x")
    assert (desk.root / "link").is_symlink()
    assert content(desk).startswith("x")


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", ".retinue/config", ".mcp.json", ".GIT/config", "l/config"]
)
def test_protected_files_are_neither_made_nor_changed(desk: Desk, path: str) -> None:
    """A23, whether or not the file exists."""
    (desk.root / "l").symlink_to(".git")
    for exists in (False, True):
        if exists:
            tree(desk.root, {path: "old\n"} if path != "l/config" else {".git/config": "old\n"})
        before = sorted(p.as_posix() for p in desk.root.rglob("*"))
        calls: list[tuple[str, dict[str, Any]]] = [
            (
                "write",
                {
                    "path": path,
                    "content": "owned",
                    "expected_sha256": sha("old\n") if exists else "",
                },
            ),
            ("edit", {"path": path, "old": "old", "new": "owned"}),
            ("edit", {"patch": f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-old\n+owned\n"}),
            ("edit", {"patch": f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+owned\n"}),
            (
                "edit",
                {
                    "patch": f"*** Begin Patch\n*** Update File: a.py\n*** Move to: {path}\n*** "
                    "End Patch"
                },
            ),
            (
                "edit",
                {
                    "patch": f"*** Begin Patch\n*** Update File: {path}\n*** Move to: x\n*** End "
                    "Patch"
                },
            ),
            ("edit", {"patch": f"*** Begin Patch\n*** Delete File: {path}\n*** End Patch"}),
        ]
        for name, args in calls:
            assert "protected" in desk.no(name, **args) or (path, exists) == ("l/config", False), (
                args
            )
        assert sorted(p.as_posix() for p in desk.root.rglob("*")) == before


def test_many_edits_of_one_file_at_once_all_count(desk: Desk) -> None:
    tree(desk.root, {"f": "".join(f"<{i}>\n" for i in range(40))})

    async def all_at_once() -> list[Any]:
        calls = [
            TOOLS["edit"].run(a_caller(desk.root), {"path": "f", "old": f"<{i}>", "new": f"[{i}]"})
            for i in range(40)
        ]
        return await asyncio.gather(*calls)

    assert not [a for a in asyncio.run(all_at_once()) if a.error]
    assert content(desk, "f") == "".join(f"[{i}]\n" for i in range(40))


class TestAfterARestart:
    """`caller.again`: a call that an earlier process may have carried out."""

    def test_an_edit_that_was_made_is_not_made_again(self, desk: Desk) -> None:
        for args in (
            {"old": "three", "new": "drei"},
            {"old": "drei", "new": "drei\nand more"},
            {"old": "one\n", "new": ""},
        ):
            desk.ok("edit", path="a.py", **args)
            before = content(desk)
            assert "was already made" in desk.again().ok("edit", path="a.py", **args)
            assert content(desk) == before

    def test_an_edit_that_was_not_made_is_made(self, desk: Desk) -> None:
        assert "Edited" in desk.again().ok("edit", path="a.py", old="three", new="three and a half")
        digest = sha(content(desk))
        assert "Edited" in desk.again().ok(
            "edit", path="a.py", old="one", new="eins", expected_sha256=digest
        )

    def test_when_it_cannot_be_told_the_model_is(self, desk: Desk) -> None:
        before = content(desk)
        for args in (
            {"old": "four", "new": "vier"},
            {"old": "one", "new": "eins", "expected_sha256": "0" * 64},
        ):
            assert "it may have changed" in desk.again().no("edit", path="a.py", **args)
        tree(desk.root, {"f": "x\nx and y\n"})
        assert "it may have changed" in desk.again().no("edit", path="f", old="x", new="x and y")
        assert content(desk) == before

    def test_a_write_looks_first(self, desk: Desk) -> None:
        desk.ok("write", path="new", content="x\n")
        assert "was already made" in desk.again().ok("write", path="new", content="x\n")
        assert "Created" in desk.again().ok("write", path="newer", content="x\n")
        digest = sha(content(desk))
        assert "Wrote" in desk.again().ok(
            "write", path="a.py", content="y\n", expected_sha256=digest
        )
        assert "was already made" in desk.again().ok(
            "write", path="a.py", content="y\n", expected_sha256=digest
        )
        assert "it may have changed" in desk.again().no(
            "write", path="a.py", content="z\n", expected_sha256=digest
        )
        assert "it may have changed" in desk.again().no("write", path="a.py", content="z\n")
        assert content(desk) == "y\n"

    def test_drafts_of_the_dead_process_are_swept(self, desk: Desk) -> None:
        (desk.root / f".{prefix('k')}12{SUFFIX}").write_text("half")
        desk.again().ok("edit", path="a.py", old="one", new="x")
        assert os.listdir(desk.root) == ["a.py"]
