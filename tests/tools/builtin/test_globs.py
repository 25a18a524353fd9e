"""Globs and ignore files, with git itself as the judge."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from retinue.formats.globs import BadGlob, Globs, alternatives
from retinue.sandbox.directory_walk import Patience, walk_directory
from retinue.sandbox.gitignore import NONE, Judge, parse
from retinue.sandbox.paths import Root
from tests.needs import needs
from tests.tools.builtin.file_tool_support import tree


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", "x/y/a.py", ".py"], ["a.pyc", "a.py/b"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["src/a.txt", "a.py"]),
        ("**/test_*", ["test_a", "x/test_b"], ["x/atest_b"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "x/src/a"]),
        ("a?c", ["abc", "x/a-c"], ["ac", "abbc"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "-x"]),
        ("[!a-c]x", ["dx"], ["ax"]),
        ("[]]x", ["]x"], ["x"]),
        ("[[:digit:]]*", ["1abc"], ["abc"]),
        ("*.{ts,tsx}", ["a.ts", "b/a.tsx"], ["a.t"]),
        ("{a,b{c,d}}.txt", ["a.txt", "bc.txt", "bd.txt"], ["b.txt"]),
        ("a{b}c", ["a{b}c"], ["abc"]),
        ("!*.py", ["a.txt"], ["a.py"]),
        (r"\*", ["*"], ["a"]),
        ("a**b", ["ab", "axxb"], ["a/b"]),
        ("./src/*.c", ["src/a.c"], ["a.c"]),
        ("*a*b*c", ["xxaxxbxxc", "abc"], ["acb", "abcd"]),
        ("\u00e9*", ["\u00e9t\u00e9"], ["e"]),
    ],
)
def test_a_glob_says_yes_and_no(pattern: str, yes: list[str], no: list[str]) -> None:
    globs = Globs(pattern)
    assert [p for p in yes if not globs.match(p)] == []
    assert [p for p in no if globs.match(p)] == []


@pytest.mark.parametrize("pattern", ["", "/", "!", "[abc", "x" * 5000, "{a,b}" * 7])
def test_a_glob_that_cannot_be_read_is_refused(pattern: str) -> None:
    with pytest.raises(BadGlob):
        Globs(pattern)


def test_no_glob_takes_for_ever() -> None:
    assert not Globs("*a" * 60 + "b").match("a" * 250)
    assert not Globs("**/a/" * 40 + "b").match("a/" * 120 + "c")


def test_braces_stand_for_their_patterns() -> None:
    assert sorted(alternatives("{a,b}{c,}")) == ["a", "ac", "b", "bc"]


RULES = """
# comment
*.log
!keep.log
/top
build/
doc/*.txt
**/gen
a/**/z
deep/**
!deep/keep
\\#hash
\\!bang
trail\\ 
spaced   
*.[oa]
sub/dir/
x?y
[
!.hidden
"""
NESTED = {
    "sub": "*.py\n!k.log\n/top\n",
    "sub/dir/inner": "*\n!*/\n!*.md\n",
    "other": "!*.log\ngen/\n",
    "deep": "!*\n",
}
NAMES = [
    "a.log",
    "keep.log",
    "k.log",
    "top",
    "build",
    "gen",
    "doc",
    "note.txt",
    "z",
    "a",
    "m",
    "#hash",
    "!bang",
    "trail",
    "",
    "spaced",
    "x.o",
    "x.a",
    "x-y",
    "sub",
    "dir",
    "inner",
    "r.md",
    "f.py",
    "deep",
    "keep",
    "other",
    ".hidden",
    ".git2",
    "café",
    "[",
    "b.txt",
]


def grow(root: Path, n: int, seed: int) -> None:
    """A tree that gives the rules something to decide."""
    chance = random.Random(seed)
    tree(root, {".gitignore": RULES} | {f"{d}/.gitignore": text for d, text in NESTED.items()})
    places = [
        "",
        "sub/",
        "sub/dir/",
        "sub/dir/inner/",
        "other/",
        "deep/",
        "doc/",
        "a/",
        "a/m/",
        "build/",
        "gen/",
    ]
    for _ in range(n):
        path = root / (
            chance.choice(places)
            + "/".join(chance.choices([x for x in NAMES if x], k=chance.randint(1, 3)))
        )
        if not any(p.is_file() for p in path.parents) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"needle {chance.random()}\nother\n")


@needs("git")
@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_out_is_what_git_leaves_out(tmp_path: Path, seed: int) -> None:
    grow(tmp_path, 250, seed)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    command = [
        "git",
        "-c",
        "core.excludesFile=",
        "-C",
        str(tmp_path),
        "ls-files",
        "-z",
        "--others",
        "--exclude-standard",
    ]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    theirs = {name for name in listing.split("\0") if name}
    with Root(str(tmp_path)) as root:
        fd = root.open_dir(".")
        ours = {e.path for e in walk_directory(fd, "", NONE, Patience()) if e.kind == "file"}
        judge = Judge(root.fd, "")
        everything = {
            p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()
        }
        judged = {p for p in everything if not p.startswith(".git/") and not judge.ignores(p)}
    assert ours == theirs
    assert judged == theirs
    assert len(everything) - len(theirs) > 50


def test_a_pattern_in_an_ignore_file_cannot_take_for_ever() -> None:
    (block,) = parse("*a" * 100 + "b\n" + "**/" * 50 + "a/**/b\n")
    assert not block.matches("a" * 250, "a" * 250, False)


def test_a_walk_follows_no_link_and_stops_when_told(tmp_path: Path) -> None:
    tree(tmp_path / "root", {f"d{i}/f{i}": "" for i in range(50)})
    (tmp_path / "secret").write_text("x")
    (tmp_path / "root" / "out").symlink_to(tmp_path)
    (tmp_path / "root" / "round").symlink_to(".")
    with Root(str(tmp_path / "root")) as root:
        entries = list(walk_directory(root.open_dir("."), "", NONE, Patience()))
        assert len(entries) == 102
        assert {e.path for e in entries if e.kind == "link"} == {"out", "round"}
        patience = Patience()
        patience.stop.set()
        assert len(list(walk_directory(root.open_dir("."), "", NONE, patience))) == 52
        assert patience.why == "cancelled"
        few = Patience(entries=60)
        assert len(list(walk_directory(root.open_dir("."), "", NONE, few))) < 102
        assert "more than 60" in few.why
