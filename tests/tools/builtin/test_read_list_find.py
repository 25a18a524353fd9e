"""`read`, `list` and `find`, and the attacks on paths that all file tools share."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import struct
import zlib
from pathlib import Path

import pytest

from retinue.tools.builtin.read_tool import MAX_IMAGE
from tests.tools.builtin.file_tool_support import TOOLS, Desk, a_caller, tree


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "root").mkdir()
    return Desk(tmp_path / "root")


def test_a_file_is_read_with_numbers_and_its_hash(desk: Desk) -> None:
    tree(desk.root, {"src/a.py": "def f():\n    return 1\n"})
    sha = hashlib.sha256(b"def f():\n    return 1\n").hexdigest()
    expected = f"[src/a.py: 2 lines, 22 bytes, sha256 {sha}]\n1\tdef f():\n2\t    return 1"
    assert desk.ok("read", path="src/a.py") == expected
    assert desk.ok("read", path=f"{desk.root}/src/a.py").endswith("2\t    return 1")
    assert desk.ok("read", path="./src//../src/./a.py").endswith("2\t    return 1")


def test_a_part_says_where_it_is_and_how_to_go_on(desk: Desk) -> None:
    tree(desk.root, {"f": "".join(f"line {i}\n" for i in range(1, 101))})
    lines = desk.ok("read", path="f", offset=40, limit=3).split("\n")
    assert lines[0].startswith("[f: lines 40-42 of 100, ")
    assert lines[1:] == ["40\tline 40", "41\tline 41", "42\tline 42", "[continue with offset 43]"]
    assert desk.ok("read", path="f", offset=100).endswith("100\tline 100")
    assert "only 100 lines" in desk.no("read", path="f", offset=101)


def test_an_answer_stays_small_whatever_the_file_is(desk: Desk) -> None:
    tree(
        desk.root,
        {
            "wide": "x" * 50_000 + "\nnext\n",
            "long": ("y" * 999 + "\n") * 3000,
            "full": b"z\n" * (5 << 20),
        },
    )
    wide = desk.ok("read", path="wide")
    assert "48000 more characters" in wide
    assert "1 long lines are truncated" in wide
    for name in ("long", "full"):
        text = desk.ok("read", path=name, limit=1_000_000)
        assert len(text) < 62_000
        last = int(text.rsplit("\n", 2)[1].split("\t")[0])
        assert text.endswith(f"[continue with offset {last + 1}]")


def test_encodings_are_told(desk: Desk) -> None:
    tree(
        desk.root,
        {
            "bom": b"\xef\xbb\xbfhi\n",
            "utf16": "h\u00e9\n".encode("utf-16"),
            "latin": b"caf\xe9\n",
            "crlf": b"a\r\nb\r\n",
            "open": "no end",
            "empty": b"",
            "late": b"x\n" * 5000 + b"\0\n",
        },
    )
    assert "utf-8 with a byte order mark" in desk.ok("read", path="bom")
    assert desk.ok("read", path="bom").endswith("\n1\thi")
    assert desk.ok("read", path="utf16").endswith("\n1\th\u00e9")
    assert "not text" in desk.ok("read", path="latin")
    assert desk.ok("read", path="latin").endswith("\n1\tcaf\ufffd")
    assert "CR LF" in desk.ok("read", path="crlf")
    assert desk.ok("read", path="crlf").endswith("\n1\ta\n2\tb")
    assert "no line feed at the end" in desk.ok("read", path="open")
    assert desk.ok("read", path="empty").startswith("[empty: 0 lines, 0 bytes, sha256 e3b0c442")
    assert "\0" not in desk.ok("read", path="late", offset=5001)


def a_png(size: int = 0) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"tEXt", b"x" * size)
    return b"\x89PNG\r\n\x1a\n" + head + body + chunk(b"IEND", b"")


def test_a_picture_comes_as_a_picture(desk: Desk) -> None:
    pictures = {
        "a.png": (a_png(), "image/png"),
        "b": (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        "c.gif": (b"GIF89a rest", "image/gif"),
        "d.txt": (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    }
    tree(desk.root, {name: data for name, (data, _) in pictures.items()})
    for name, (data, kind) in pictures.items():
        answer = desk.call("read", path=name)
        assert not answer.error
        assert [(i.media_type, base64.b64decode(i.data)) for i in answer.images] == [(kind, data)]
    tree(desk.root, {"big.png": a_png(MAX_IMAGE)})
    assert "the limit is 5000000" in desk.no("read", path="big.png")


def test_what_cannot_be_shown_is_said_to_be(desk: Desk) -> None:
    tree(desk.root, {"a.out": b"\x7fELF\0\0", "d/f": "x", "big": b"x" * ((10 << 20) + 1)})
    os.mkfifo(desk.root / "fifo")
    assert "binary file of 6 bytes" in desk.no("read", path="a.out")
    assert desk.no("read", path="d").endswith("this is a directory. Use list")
    assert "10485761 bytes" in desk.no("read", path="big")
    assert "a FIFO" in desk.no("read", path="fifo")
    assert "no such file" in desk.no("read", path="none")
    assert "~ is not expanded" in desk.no("read", path="~/x")


ATTACKS = [
    "../../etc/passwd",
    "/etc/passwd",
    "a/../../x",
    "....//....//etc/passwd",
    "%2e%2e/%2e%2e/etc/passwd",
    "..%2f..%2fetc/passwd",
    "C:\\Windows\\win.ini",
    "\\\\server\\share",
    "~root/.bashrc",
    "~/.ssh/id_rsa",
    "//etc/passwd",
    "/./etc/passwd",
    "/proc/self/environ",
    "proc/self/environ",
    "file:///etc/passwd",
    "..",
    "../",
    "../root/../secret",
    "out/secret",
    "secret_link",
    "a\0/../../x",
    "",
    "\ud83d",
    "x" * 5000,
    "d/" * 1500,
    "..\u2215secret",
    "\uff0e\uff0e/secret",
    ".\u200b./secret",
]


@pytest.mark.parametrize("path", ATTACKS)
@pytest.mark.parametrize("again", [False, True])
def test_nothing_outside_is_seen_or_touched(desk: Desk, path: str, again: bool) -> None:
    """A7, A19: refused, or a name like any other inside the root."""
    secret = desk.root.parent / "secret"
    secret.write_text("swordfish")
    (desk.root / "out").symlink_to("..")
    (desk.root / "secret_link").symlink_to(secret)
    (desk.root / "proc").symlink_to("/proc")
    before = sorted(os.listdir(desk.root.parent))
    if again:
        desk = desk.again()
    calls = {
        "read": {"path": path},
        "list": {"path": path},
        "find": {"pattern": "*", "path": path},
        "search": {"pattern": ".", "path": path},
        "edit": {"path": path, "old": "swordfish", "new": "x"},
        "write": {"path": path, "content": "owned"},
    }
    for name, args in calls.items():
        answer = desk.call(name, **args)
        assert "swordfish" not in answer.text
        assert "root:" not in answer.text
        assert answer.error or name == "write"
    diff = f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-swordfish\n+x\n"
    assert desk.call("edit", patch=diff).error
    assert (
        desk.call("edit", patch=f"*** Begin Patch\n*** Delete File: {path}\n*** End Patch").error
        or path != "secret"
    )
    assert secret.read_text() == "swordfish"
    assert sorted(os.listdir(desk.root.parent)) == before


def test_further_roots_are_reached_by_absolute_paths(tmp_path: Path) -> None:
    tree(
        tmp_path, {"root/a": "mine\n", "lib/b": "shared\n", "out/c": "old\n", "other/d": "hidden\n"}
    )
    root, lib, out = (str(tmp_path / n) for n in ("root", "lib", "out"))
    desk = Desk(tmp_path / "root", read=(root, lib), write=(out,))
    assert desk.ok("read", path=f"{lib}/b").endswith("1\tshared")
    assert desk.ok("list", path=lib) == f"{lib}/b\t7"
    assert desk.ok("find", pattern="*", path=lib) == f"{lib}/b"
    assert desk.ok("search", pattern="shared", path=lib) == f"{lib}/b:1:shared"
    assert "outside" in desk.no("read", path=f"{tmp_path}/other/d")
    assert "outside" in desk.no("read", path=f"{out}/c")
    assert "outside" in desk.no("write", path="a", content="x")
    assert "outside" in desk.no("write", path=f"{lib}/b", content="x")
    assert "Created" in desk.ok("write", path=f"{out}/new", content="x")
    text = desk.no("write", path=f"{out}/c", content="x")
    assert hashlib.sha256(b"old\n").hexdigest() not in text, "what may not be read is not described"
    assert "outside" in desk.no("edit", path=f"{out}/c", old="old", new="x"), (
        "an edit shows what it changes"
    )
    assert "cannot write any" in Desk(tmp_path / "root", write=()).no(
        "write", path="x", content="x"
    )
    assert "cannot read any" in Desk(tmp_path / "root", read=()).no("read", path="a")


def test_a_run_without_a_directory_has_no_files() -> None:
    answer = asyncio.run(TOOLS["read"].run(a_caller(""), {"path": "/etc/passwd"}))
    assert answer.error and "no directory to work in" in answer.text


def test_a_directory_is_listed_sorted_to_its_depth(desk: Desk) -> None:
    tree(
        desk.root,
        {"b/c/d.txt": "1234", "a.txt": "12", ".hidden": "", ".git/config": "x", "z/y": ""},
    )
    (desk.root / "link").symlink_to("a.txt")
    os.mkfifo(desk.root / "pipe")
    top = [".hidden\t0", "a.txt\t2", "b/", "link\tlink", "pipe\tnot a regular file", "z/"]
    assert desk.ok("list").split("\n") == top
    assert desk.ok("list", path="b") == "b/c/"
    assert desk.ok("list", path="b", depth=2) == "b/c/\nb/c/d.txt\t4"
    assert desk.ok("list", depth=3).split("\n")[2:5] == ["b/", "b/c/", "b/c/d.txt\t4"]
    assert desk.ok("list", limit=2) == (
        ".hidden\t0\na.txt\t2\n[2 of 6 shown; raise limit, lower depth, or list a subdirectory]"
    )
    assert desk.no("list", path="a.txt").endswith("this is a file. Use read")
    assert desk.ok("list", path="z/") == "z/y\t0"
    (desk.root / "void").mkdir()
    assert desk.ok("list", path="void") == "[the directory is empty]"


def test_what_is_ignored_is_counted(desk: Desk) -> None:
    tree(
        desk.root,
        {".gitignore": "*.log\nnode_modules/\n", "a.log": "", "node_modules/x/y": "", "kept": ""},
    )
    assert desk.ok("list").endswith("kept\t0\n[2 entries are ignored by .gitignore]")
    assert desk.ok("list", path="node_modules") == "node_modules/x/", "what is named is shown"


def test_names_that_cannot_be_printed_are_escaped(desk: Desk) -> None:
    for name in (b"caf\xe9", b"two\nlines", b"tab\t", "right\u202eleft".encode()):
        with open(os.fsencode(desk.root) + b"/" + name, "wb"):
            pass
    expected = ["caf\\xe9\t0", "right\\u202eleft\t0", "tab\\t\t0", "two\\nlines\t0"]
    assert sorted(desk.ok("list").split("\n")) == expected
    assert sorted(desk.ok("find", pattern="*").split("\n")) == [
        e.removesuffix("\t0") for e in expected
    ]


def test_paths_are_found_by_a_glob(desk: Desk) -> None:
    tree(
        desk.root,
        {n: "" for n in ("a.py", "s/b.py", "s/t/c.py", "s/t/d.txt", ".git/e.py", "out/f.py")},
    )
    tree(desk.root, {".gitignore": "out\n"})
    assert desk.ok("find", pattern="*.py") == "a.py\ns/b.py\ns/t/c.py"
    assert desk.ok("find", pattern="s/**/*.py") == "s/b.py\ns/t/c.py"
    assert desk.ok("find", pattern="t") == "s/t/"
    assert desk.ok("find", pattern="*.py", path="s/t") == "s/t/c.py"
    assert desk.ok("find", pattern="t/*.py", path="s") == "s/t/c.py"
    assert desk.ok("find", pattern="*.{py,txt}", limit=1).startswith("a.py\n[1 of 4 shown")
    assert desk.ok("find", pattern="*.rs").startswith("[no match")
    assert "not closed" in desk.no("find", pattern="[a")


def test_a_huge_directory_is_listed_and_searched(desk: Desk) -> None:
    n = 5_000
    fd = os.open(desk.root, os.O_RDONLY)
    (desk.root / "f000000").write_text("needle\n")
    for i in range(1, n):
        os.link("f000000", f"f{i:06}", src_dir_fd=fd, dst_dir_fd=fd)
    os.close(fd)
    text = desk.ok("list")
    assert text.startswith("f000000\t7\n")
    assert f"[2000 of {n} shown" in text
    assert desk.ok("find", pattern="f00000?").split("\n") == [f"f{i:06}" for i in range(10)]
    assert desk.ok("search", pattern="needle", mode="files").startswith(
        "f000000\nf000001\nf000002\n"
    )


def test_directories_nested_beyond_all_measure_are_said_so(desk: Desk) -> None:
    fd = os.open(desk.root, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    assert "nested more than 128 deep" in desk.ok("find", pattern="x")


def test_one_line_tells_what_a_call_is_about() -> None:
    assert (
        TOOLS["read"].summary({"path": "src/app.py", "offset": 40, "limit": 41})
        == "read src/app.py:40-80"
    )
    assert TOOLS["read"].summary({"path": "a"}) == "read a"
    assert TOOLS["search"].summary({"pattern": "def main"}) == 'search "def main"'
    assert TOOLS["find"].summary({"pattern": "*.py", "path": "src"}) == "find *.py in src"
    assert TOOLS["list"].summary({"path": "src"}) == "list src"
    assert TOOLS["write"].summary({"path": "a", "content": "xyz"}) == "write a (3 characters)"
    assert TOOLS["write"].summary({"path": "a", "content": "x"}) == "write a (1 character)"
    assert TOOLS["edit"].summary({"path": "a"}) == "edit a"
    assert (
        TOOLS["edit"].summary({"patch": "*** Begin Patch\n*** Delete File: b\n*** End Patch"})
        == "edit b"
    )
    for tool in TOOLS.values():
        assert "\n" not in tool.summary(
            {"path": "a\nb", "pattern": "x\ny", "content": 5, "offset": "no"}
        )


def test_each_tool_says_what_it_is() -> None:
    kinds = {name: (tool.restart, tool.risk, tool.subject) for name, tool in TOOLS.items()}
    looks, changes = ("pure", "read", "path"), ("reconcile", "write", "path")
    assert kinds == {
        "read": looks, "list": looks, "find": looks, "search": looks,
        "edit": changes, "write": changes, "symbols": looks,
    }  # fmt: skip
    for tool in TOOLS.values():
        assert tool.schema.parameters["additionalProperties"] is False


def test_the_kernels_own_files_are_not_read_though_the_root_holds_them() -> None:
    desk = Desk(Path("/"))
    for path in (
        "/proc/self/environ",
        "proc/self/status",
        "/proc/1/environ",
        "sys/kernel/ostype",
        "/proc/self/root/etc",
    ):
        assert desk.call("read", path=path).error
        assert desk.call("list", path=os.path.dirname(path)).error
        assert desk.call("search", pattern=".", path=path).error
        assert desk.call("write", path=path, content="x").error
    assert "kernel" in desk.no("write", path="/dev/shm/retinue-test", content="x")
    assert "files in /proc, /sys and /dev cannot be used" in desk.no("list", path="/dev")
    assert "etc/" in desk.ok("list").split("\n")


def test_odd_ignore_files_do_no_harm(desk: Desk) -> None:
    (desk.root / ".gitignore").mkdir()
    (desk.root / "a").mkdir()
    os.mkfifo(desk.root / "a" / ".gitignore")
    (desk.root / "b").mkdir()
    (desk.root / "b" / ".gitignore").symlink_to("/etc/passwd")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert desk.ok("find", pattern="*").split("\n") == [
            ".gitignore/",
            "a/",
            "a/.gitignore",
            "b/",
            "b/.gitignore",
        ]
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_no_call_leaves_a_descriptor_open(desk: Desk) -> None:
    tree(desk.root, {"a": "x\n", "d/e/f": "x\n", ".git/config": "x\n"})
    (desk.root / "loop").symlink_to("loop")

    async def many() -> None:
        for i in range(12):
            for path in ("a", "d", "none/x", "..", "loop", f"new/{i}/f", ".git/config", "a/b"):
                for name, args in {
                    "read": {},
                    "list": {},
                    "find": {"pattern": "*"},
                    "search": {"pattern": "x"},
                    "edit": {"old": "x", "new": "y"},
                    "write": {"content": "x"},
                }.items():
                    await TOOLS[name].run(a_caller(desk.root), {"path": path, **args})
            counts.append(len(os.listdir("/proc/self/fd")))

    counts: list[int] = []
    asyncio.run(many())
    assert counts[-1] <= counts[2]
