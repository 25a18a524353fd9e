"""Patches: what models write is understood, and either all of it is done or nothing."""

from __future__ import annotations

import difflib
import os
import random
import subprocess
from pathlib import Path

import pytest

from retinue.sandbox import atomic_write
from retinue.tools.builtin.edit import EditTool
from retinue.tools.builtin.hunks import BadPatch, apply_hunks
from retinue.tools.builtin.patch import parse
from tests.needs import needs
from tests.tools.builtin.file_tool_support import Desk, tree

A = "".join(f"line {i}\n" for i in range(1, 21))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    tree(tmp_path, {"a.txt": A, "b.txt": "x\ny\nz\n", "sub/c.txt": "only\n"})
    return Desk(tmp_path)


def content(desk: Desk, name: str) -> str:
    return (desk.root / name).read_bytes().decode()


def state(desk: Desk) -> dict[str, bytes]:
    return {
        p.relative_to(desk.root).as_posix(): p.read_bytes()
        for p in desk.root.rglob("*")
        if p.is_file()
    }


ENVELOPE = """*** Begin Patch
*** Update File: a.txt
@@
 line 3
-line 4
+LINE 4
 line 5
@@ line 10
-line 11
+LINE 11
*** Add File: new/d.txt
+first
+second
*** Delete File: b.txt
*** Update File: sub/c.txt
*** Move to: sub/e.txt
@@
-only
+moved
*** End Patch
"""


def test_an_envelope_changes_adds_moves_and_deletes(desk: Desk) -> None:
    os.chmod(desk.root / "sub" / "c.txt", 0o750)
    text = desk.ok("edit", patch=ENVELOPE)
    assert state(desk) == {
        "a.txt": A.replace("line 4\n", "LINE 4\n").replace("line 11\n", "LINE 11\n").encode(),
        "new/d.txt": b"first\nsecond\n",
        "sub/e.txt": b"moved\n",
    }
    assert [line.split(":")[0] for line in text.split("\n") if line[0].isupper()] == [
        "Changed a.txt",
        "Added new/d.txt",
        "Deleted b.txt",
        "Moved sub/c.txt to sub/e.txt",
    ]
    assert (desk.root / "sub" / "e.txt").stat().st_mode & 0o777 == 0o750
    assert EditTool().subjects({"patch": ENVELOPE}) == (
        "a.txt",
        "new/d.txt",
        "b.txt",
        "sub/c.txt",
        "sub/e.txt",
    )


def test_a_unified_diff_does_the_same(desk: Desk) -> None:
    patch = """diff --git a/a.txt b/a.txt
index 1..2 100644
--- a/a.txt
+++ b/a.txt
@@ -3,3 +3,3 @@ section
 line 3
-line 4
+LINE 4
 line 5
@@ -20 +20,2 @@
 line 20
+line 21
diff --git a/d.txt b/d.txt
new file mode 100644
--- /dev/null
+++ b/d.txt
@@ -0,0 +1,2 @@
+first
+second
\\ No newline at end of file
diff --git a/b.txt b/b.txt
deleted file mode 100644
--- a/b.txt
+++ /dev/null
@@ -1,3 +0,0 @@
-x
-y
-z
diff --git a/sub/c.txt b/sub/e.txt
similarity index 100%
rename from sub/c.txt
rename to sub/e.txt
diff --git a/void b/void
new file mode 100644
index 0000000..e69de29
"""
    desk.ok("edit", patch=patch)
    assert state(desk) == {
        "a.txt": A.replace("line 4\n", "LINE 4\n").encode() + b"line 21\n",
        "d.txt": b"first\nsecond",
        "sub/e.txt": b"only\n",
        "void": b"",
    }


@pytest.mark.parametrize(
    "patch",
    [
        "--- a/a.txt\n+++ b/a.txt\n@@ -9,9 +1,1 @@\n line 3\n-line 4\n+LINE 4\n line 5\n",
        "--- a.txt\t2024-01-01\n+++ a.txt\t2024-01-02\n@@ -300,3 +300,3 @@\n line 3\n-line "
        "4\n+LINE 4\n line 5\n",
        "--- a/a.txt\n+++ b/a.txt\n@@ ... @@\n line 3\n-line 4\n+LINE 4\n line 5\n\n",
        "So:\n```diff\n--- a/a.txt\n+++ b/a.txt\n@@ -3,3 +3,3 @@\n line 3\n-line 4\n+LINE 4\n "
        "line 5\n```\n",
        "--- a/a.txt\r\n+++ b/a.txt\r\n@@ -4 +4 @@\r\n-line 4\r\n+LINE 4\r\n",
        "*** Begin Patch\n*** Update File: a.txt\n-line 4\n+LINE 4\n*** End Patch",
        "text\n*** Begin Patch\n*** Update File: a.txt\n@@ line 3\n-line 4\n+LINE 4\n*** End "
        "Patch\nmore",
    ],
)
def test_wrong_counts_and_decorations_do_no_harm(desk: Desk, patch: str) -> None:
    desk.ok("edit", patch=patch)
    assert content(desk, "a.txt") == A.replace("line 4\n", "LINE 4\n")


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("", "`path` is missing"),
        ("nonsense", "it contains no change"),
        ("*** Begin Patch\n*** End Patch", "it contains no change"),
        ("*** Begin Patch\n*** Update File: a.txt\n-line 4\n+x\n", "*** End Patch is missing"),
        ("*** Begin Patch\n*** Update File: a.txt\nline 4\n*** End Patch", "does not start with"),
        ("*** Begin Patch\n-x\n*** End Patch", "header is missing"),
        ("*** Begin Patch\n*** Update File: a.txt\n*** End Patch", "no hunk"),
        ("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-line 99\n+x\n", "'line 99'"),
        (
            "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1 @@\n line 1\n-line 3\n",
            "at line 2 there is 'line 2'",
        ),
        (
            "*** Begin Patch\n*** Update File: b.txt\n@@ q\n-x\n*** End Patch",
            "'q' after @@ was not found",
        ),
        ("@@ -1 +1 @@\n-a\n+b\n", "before the --- and +++"),
        ("--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+x\n", "already exists"),
        ("--- a/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "more lines than the patch removes"),
        ("--- a/none\n+++ b/none\n@@ -1 +1 @@\n-a\n+b\n", "file not found"),
        (
            "*** Begin Patch\n*** Delete File: b.txt\n*** Delete File: b.txt\n*** End Patch",
            "occurs in it twice",
        ),
        (
            "*** Begin Patch\n*** Update File: b.txt\n*** Move to: a.txt\n*** End Patch",
            "a file already exists",
        ),
        ("*** Begin Patch\n*** Delete File: sub\n*** End Patch", "directory"),
        ("diff --git a/x b/x\nGIT binary patch\n", "binary"),
        ("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n", "hunk is empty"),
    ],
)
def test_a_patch_that_does_not_fit_changes_nothing(desk: Desk, patch: str, words: str) -> None:
    before = state(desk)
    assert words in desk.no("edit", patch=patch)
    if patch.startswith("---"):
        good = "--- a/sub/c.txt\n+++ b/sub/c.txt\n@@ -1 +1 @@\n-only\n+changed\n"
        desk.no("edit", patch=f"{good}--- /dev/null\n+++ b/n/n\n@@ -0,0 +1 @@\n+x\n{patch}")
    assert state(desk) == before
    assert not (desk.root / "n").exists()


def test_a_place_that_is_not_the_only_one_must_be_told(desk: Desk) -> None:
    tree(desk.root, {"f": "a\nb\na\nb\na\nb\n"})
    envelope = "*** Begin Patch\n*** Update File: f\n-a\n+A\n*** End Patch"
    assert "3 times, at lines 1, 3, 5" in desk.no("edit", patch=envelope)
    desk.ok("edit", patch="--- a/f\n+++ b/f\n@@ -3,2 +3,2 @@\n-a\n+A\n b\n")
    assert content(desk, "f") == "a\nb\nA\nb\na\nb\n"
    desk.ok(
        "edit",
        patch="*** Begin Patch\n*** Update File: f\n-a\n+Z\n b\n*** End of File\n*** End Patch",
    )
    assert content(desk, "f") == "a\nb\nA\nb\nZ\nb\n"


def test_line_ends_stay_as_they_are(desk: Desk) -> None:
    tree(desk.root, {"crlf": b"a\r\nb\r\nc\r\n", "open": b"a\nb", "bom": b"\xef\xbb\xbfa\nb\n"})
    for name in ("crlf", "open", "bom"):
        desk.ok("edit", patch=f"--- a/{name}\n+++ b/{name}\n@@ -1,2 +1,3 @@\n a\n-b\n+x\n+y\n")
    assert content(desk, "crlf") == "a\r\nx\r\ny\r\nc\r\n"
    assert content(desk, "open") == "a\nx\ny"
    assert (desk.root / "bom").read_bytes() == b"\xef\xbb\xbfa\nx\ny\n"
    desk.ok(
        "edit", patch="--- a/open\n+++ b/open\n@@ -3 +3 @@\n-y\n\\ No newline at end of file\n+z\n"
    )
    assert content(desk, "open") == "a\nx\nz\n"
    desk.ok(
        "edit", patch="--- a/open\n+++ b/open\n@@ -3 +3 @@\n-z\n+z\n\\ No newline at end of file\n"
    )
    assert content(desk, "open") == "a\nx\nz"


def test_one_file_under_two_names_is_noticed(desk: Desk) -> None:
    (desk.root / "alias").symlink_to("a.txt")
    patch = "".join(f"--- a/{n}\n+++ b/{n}\n@@ -1 +1 @@\n-line 1\n+x\n" for n in ("a.txt", "alias"))
    assert "the same file" in desk.no("edit", patch=patch)
    assert content(desk, "a.txt") == A


def test_when_a_later_file_cannot_be_written_the_earlier_ones_are_put_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(desk)
    real = atomic_write.PendingWrite.commit

    def failing(self: atomic_write.PendingWrite) -> None:
        if self.spot.name == "d.txt":
            self.discard()
            raise OSError(28, "No space left on device")
        real(self)

    monkeypatch.setattr(atomic_write.PendingWrite, "commit", failing)
    patch = ENVELOPE.replace("*** Add File: new/d.txt", "*** Add File: z/d.txt")
    desk.no("edit", patch=patch)
    assert state(desk) == before
    assert not (desk.root / "z").exists()


class TestAfterARestart:
    def test_a_patch_that_was_applied_is_not_applied_again(self, desk: Desk) -> None:
        desk.ok("edit", patch=ENVELOPE)
        before = state(desk)
        assert "was already applied" in desk.again().ok("edit", patch=ENVELOPE)
        assert state(desk) == before

    def test_what_was_left_undone_is_done(self, desk: Desk) -> None:
        desk.ok("edit", patch=ENVELOPE)
        whole = state(desk)
        tree(desk.root, {"a.txt": A, "sub/c.txt": "only\n"})
        (desk.root / "sub" / "e.txt").unlink()
        text = desk.again().ok("edit", patch=ENVELOPE)
        assert state(desk) == whole
        assert "Added" not in text

    def test_what_cannot_be_told_is_left_alone(self, desk: Desk) -> None:
        tree(desk.root, {"a.txt": "something else\n"})
        before = state(desk)
        assert "it may have changed" in desk.again().no("edit", patch=ENVELOPE)
        assert state(desk) == before


@needs("git")
def test_random_diffs_of_difflib_and_git_are_applied(tmp_path: Path) -> None:
    chance = random.Random(5)
    for _ in range(150):
        old = [chance.choice("abcdefgh") for _ in range(chance.randint(0, 30))]
        new = list(old)
        for _ in range(chance.randint(1, 6)):
            at = chance.randint(0, len(new))
            new[at : at + chance.randint(0, 3)] = [
                chance.choice("xyz- +@") for _ in range(chance.randint(0, 3))
            ]
        before, after = ("\n".join(t) + chance.choice(["\n", ""]) if t else "" for t in (old, new))
        if before == after or not before or not after:
            continue
        (tmp_path / "a").write_text(before)
        (tmp_path / "b").write_text(after)
        command = ["git", "diff", "--no-index", f"-U{chance.randint(0, 4)}", "a", "b"]
        diff = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
        (change,) = parse(diff)
        assert apply_hunks(before, change.hunks) == after, diff
        assert apply_hunks(after, [h.reversed() for h in change.hunks]) == before, diff
        if before.endswith("\n") and after.endswith("\n"):
            lines = difflib.unified_diff(
                before.splitlines(True), after.splitlines(True), "a/f", "b/f"
            )
            (change,) = parse("".join(lines))
            assert apply_hunks(before, change.hunks) == after


def test_no_patch_takes_for_ever() -> None:
    text = "\n" * 2_000_000
    with pytest.raises(BadPatch):
        apply_hunks(
            text, parse("--- a/f\n+++ b/f\n@@ -1,900 +1 @@\n" + " \n" * 900 + "-x\n")[0].hunks
        )
    with pytest.raises(BadPatch):
        parse("*** Begin Patch\n" + "*** Update File: x\n" * 5000 + "*** End Patch")
    parse("--- a/f\n+++ b/f\n" + "@@ -1 +1 @@\n-x\n+y\n" * 20_000)
