"""`search` finds the same with ripgrep and without, and tells what it did not look at."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from retinue.tools.builtin import ripgrep, search, search_match
from tests.needs import needs
from tests.sandbox.test_atomic_write import exchange
from tests.tools.builtin.file_tool_support import TOOLS, Desk, a_caller, tree
from tests.tools.builtin.test_globs import grow

pytestmark = needs("rg")


@pytest.fixture(params=["ripgrep", "scanner"])
def desk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    if request.param == "scanner":
        monkeypatch.setattr(search, "ripgrep", lambda roots: "")
    else:
        assert ripgrep.ripgrep(()), "ripgrep was not found"
    root = tmp_path / "root"
    root.mkdir()
    return Desk(root)


def test_lines_come_with_their_path_and_number(desk: Desk) -> None:
    tree(
        desk.root,
        {"b.py": "x\ndef main():\n", "a/c.py": "def main(): pass\nend\n", "d.txt": "nothing\n"},
    )
    assert desk.ok("search", pattern=r"def \w+") == "a/c.py:1:def main(): pass\nb.py:2:def main():"
    assert desk.ok("search", pattern="DEF", ignore_case=True, mode="files") == "a/c.py\nb.py"
    assert desk.ok("search", pattern="e", mode="count") == "a/c.py:2\nb.py:1\n[3 lines in 2 files]"
    assert desk.ok("search", pattern="def", path="a") == "a/c.py:1:def main(): pass"
    assert desk.ok("search", pattern="def", path="b.py") == "b.py:2:def main():"
    assert (
        desk.ok("search", pattern="def", path=str(desk.root / "a" / "c.py"), mode="files")
        == "a/c.py"
    )
    assert desk.ok("search", pattern="absent") == "[no match]"


def test_context_is_shown_with_dashes(desk: Desk) -> None:
    tree(desk.root, {"f": "1\n2\nhit\n4\n5\n6\n7\nhit\nhit\n10\n"})
    assert desk.ok("search", pattern="hit", context=1) == (
        "f-2-2\nf:3:hit\nf-4-4\n--\nf-7-7\nf:8:hit\nf:9:hit\nf-10-10"
    )  # fmt: skip


def test_globs_choose_files(desk: Desk) -> None:
    tree(
        desk.root,
        {n: "hit\n" for n in ("a.py", "s/b.py", "s/t/c.ts", "s/t/d.tsx", ".github/e.yml")},
    )
    by_glob = {
        glob: desk.ok("search", pattern="hit", glob=glob, mode="files").split("\n")
        for glob in ("*.py", "*.{ts,tsx}", "s/**", "s/*.py", "!*.py", ".github/*", "s/t/[c]*")
    }
    assert by_glob == {
        "*.py": ["a.py", "s/b.py"],
        "*.{ts,tsx}": ["s/t/c.ts", "s/t/d.tsx"],
        "s/**": ["s/b.py", "s/t/c.ts", "s/t/d.tsx"],
        "s/*.py": ["s/b.py"],
        "!*.py": [".github/e.yml", "s/t/c.ts", "s/t/d.tsx"],
        ".github/*": [".github/e.yml"],
        "s/t/[c]*": ["s/t/c.ts"],
    }
    assert desk.ok("search", pattern="hit", path="s", glob="t/*.ts", mode="files") == "s/t/c.ts"


def test_a_glob_does_not_bring_back_what_is_ignored(desk: Desk) -> None:
    tree(
        desk.root, {".gitignore": "*.log\n", "a.log": "hit\n", "s/b.log": "hit\n", "c.txt": "hit\n"}
    )
    assert desk.ok("search", pattern="hit", glob="*.log") == "[no match]"
    assert desk.ok("search", pattern="hit", path="s") == "[no match]", (
        "the rules above a directory hold in it"
    )
    assert desk.ok("search", pattern="hit", path="a.log") == "a.log:1:hit", (
        "a file that is named is searched"
    )


def test_what_is_not_text_is_passed_over(desk: Desk) -> None:
    tree(
        desk.root,
        {
            "binary": b"hit\n\0\n",
            "latin": b"caf\xe9 hit\n",
            "crlf": b"a hit\r\nb\r\n",
            "utf16": "hit\n".encode("utf-16"),
            "last": "no newline hit",
            ".git/config": "hit\n",
            "sub/.git/x": "hit\n",
        },
    )
    expected = "crlf:1:a hit\nlast:1:no newline hit\nlatin:1:caf\ufffd hit"
    assert desk.ok("search", pattern="hit$") == expected
    assert "binary" in desk.ok("search", pattern="hit", path="binary")


def test_text_is_searched_by_characters(desk: Desk) -> None:
    tree(desk.root, {"f": "stra\u00dfe\n\u00c4pfel\nabc\n"})
    assert desk.ok("search", pattern=r"^\w{6}$") == "f:1:stra\u00dfe"
    assert desk.ok("search", pattern="[\u00e4\u00c4]pfel") == "f:2:\u00c4pfel"
    assert desk.ok("search", pattern="\u00e4PFEL", ignore_case=True) == "f:2:\u00c4pfel"


def test_a_long_line_is_shown_around_the_match(desk: Desk) -> None:
    tree(desk.root, {"f": "x" * 5000 + "needle" + "y" * 5000 + "\n"})
    text = desk.ok("search", pattern="needle")
    assert len(text) < 600
    assert "needle" in text
    assert "10006 bytes" in text


def test_too_many_matches_are_cut_with_advice(desk: Desk) -> None:
    tree(desk.root, {f"f{i:03}": "hit\n" * 10 for i in range(100)})
    text = desk.ok("search", pattern="hit", limit=15)
    assert text.split("\n")[:2] == ["f000:1:hit", "f000:2:hit"]
    assert text.endswith(
        "[the first 15 of 1000 matches; narrow the pattern, path or glob, or raise limit]"
    )
    assert len(text.split("\n")) == 16
    assert "[20 of 100 shown" in desk.ok("search", pattern="hit", mode="files", limit=20)
    assert "[20 of 100 shown" in desk.ok("search", pattern="hit", mode="count", limit=20)


def test_a_flood_of_matches_is_stopped(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(search.ENOUGH, "lines", 50)
    tree(desk.root, {f"f{i:03}": "hit\n" * 2000 for i in range(100)})
    text = desk.ok("search", pattern="hit", limit=10)
    assert "incomplete: more than 50 matches" in text
    assert len(text) < 2000


@pytest.mark.parametrize("pattern", ["(abc", "a{2,1}", "*", "[z-a]", "(?P<n>a)(?P<n>b)"])
def test_a_pattern_that_is_wrong_is_said_to_be(desk: Desk, pattern: str) -> None:
    tree(desk.root, {"f": "x\n"})
    assert "not a valid regular expression" in desk.no("search", pattern=pattern)


@pytest.mark.parametrize(
    "args",
    [{"pattern": ""}, {"pattern": "a\0"}, {"pattern": "a\nb"}, {"pattern": "a", "glob": "[a"}],
)
def test_what_cannot_be_asked_is_refused(desk: Desk, args: dict[str, str]) -> None:
    assert desk.no("search", **args).startswith("Invalid parameters")


def test_a_pattern_that_only_python_knows_is_taken_too(desk: Desk) -> None:
    tree(desk.root, {"f": "foobar\nfoobaz\nxx\n"})
    assert desk.ok("search", pattern="foo(?!bar)") == "f:2:foobaz"
    assert desk.ok("search", pattern=r"(x)\1") == "f:3:xx"


def test_a_pattern_that_never_ends_is_stopped_and_nobody_waits_for_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "SECONDS", 1.0)
    tree(desk.root, {"f": "a" * 40 + "\n"})

    async def both() -> tuple[str, int]:
        call = asyncio.create_task(
            TOOLS["search"].run(a_caller(desk.root), {"pattern": r"(a+)+\1$(?!x)b"})
        )
        ticks = 0
        while not call.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return (await call).text, ticks

    text, ticks = asyncio.run(both())
    assert "incomplete: it took longer than 1 s" in text
    assert ticks > 10


def test_a_search_that_is_called_off_leaves_no_process(desk: Desk) -> None:
    tree(desk.root, {"f": "a" * 40 + "\n"})

    def children() -> set[str]:
        listing = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
        return set(listing.split())

    async def called_off() -> None:
        before = children()
        call = asyncio.create_task(
            TOOLS["search"].run(a_caller(desk.root), {"pattern": r"(a+)+\1$(?!x)b"})
        )
        for _ in range(24_000):
            if children() - before:
                break
            await asyncio.sleep(0.005)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not children() - before

    asyncio.run(called_off())


def test_links_are_not_followed(desk: Desk) -> None:
    outside = desk.root.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("hit\n")
    tree(desk.root, {"real/f": "hit\n"})
    (desk.root / "out").symlink_to(outside)
    (desk.root / "file").symlink_to(outside / "secret")
    (desk.root / "inner").symlink_to("real")
    assert desk.ok("search", pattern="hit") == "real/f:1:hit"
    assert desk.ok("search", pattern="hit", path="inner") == "real/f:1:hit"
    assert "outside" in desk.no("search", pattern="hit", path="out")
    assert "outside" in desk.no("search", pattern="hit", path="file")


def test_what_is_not_in_the_file_itself_is_not_shown(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody swaps a file for a link after it was listed and before it is opened: the answer must
    not tell."""
    outside = desk.root.parent / "secret"
    outside.write_text("hit: the password is swordfish\n")
    tree(desk.root, {"f": "innocent hit\n" * 5, "g": "hit\n"})

    real = ripgrep._run

    async def swapped(*args: object, **options: object) -> search_match.SearchResult:
        result = await real(*args, **options)  # type: ignore[arg-type]
        for line in result.lines:
            if line.path == "f":
                line.raw, line.offset, line.number = b"hit: the password is swordfish\n", 0, 1
        return result

    monkeypatch.setattr(ripgrep, "_run", swapped)
    for mode in ("lines", "files", "count"):
        text = desk.ok("search", pattern="hit", mode=mode)
        assert text.startswith("g")
        assert "swordfish" not in text


@pytest.mark.parametrize("seed", range(2))
def test_both_ways_give_the_same_answer(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path, 300, seed)
    odd = os.fsencode(tmp_path)
    for name in (
        b"caf\xe9.txt",
        b"new\nline",
        b"\xff\xfe",
        "snow\u2603".encode(),
        b" lead",
        b"-dash",
        b"tab\tname",
    ):
        with open(odd + b"/" + name, "wb") as file:
            file.write(b"a needle here\r\nand\nneedle\xff\n")
    desk = Desk(tmp_path)
    orders = [
        {"pattern": "needle"},
        {"pattern": r"^needle 0\.[0-4]", "mode": "files"},
        {"pattern": "NEEDLE", "ignore_case": True, "mode": "count"},
        {"pattern": r"\bother$", "context": 2, "limit": 10_000},
        {"pattern": "needle", "path": "sub"},
        {"pattern": "needle", "path": "sub/dir", "mode": "files"},
        {"pattern": "needle", "path": "deep", "glob": "*.md"},
        {"pattern": "needle", "glob": "**/doc/*"},
        {"pattern": "needle", "path": "build", "mode": "files"},
        {"pattern": "needle$"},
        {"pattern": "[\u2600-\u2700]|here"},
    ]
    with_it = [desk.ok("search", **order) for order in orders]
    monkeypatch.setattr(search, "ripgrep", lambda roots: "")
    without = [desk.ok("search", **order) for order in orders]
    for order, one, other in zip(orders, with_it, without, strict=True):
        assert one == other, order
    assert len(with_it[0].split("\n")) > 50
    assert r"caf\xe9.txt" in with_it[0]


def test_a_ripgrep_that_a_run_could_have_written_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "rg"
    tree(tmp_path, {"bin/rg": "#!/bin/sh\ntouch " + str(tmp_path / "owned") + "\n", "f": "hit\n"})
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    real = ripgrep.ripgrep(())
    assert real == ripgrep.ripgrep((str(tmp_path),)) != str(fake), (
        "not even if no run works there now"
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:.:")
    assert ripgrep.ripgrep(()) == ""
    assert Desk(tmp_path).ok("search", pattern="hit", mode="files") == "f"
    assert not (tmp_path / "owned").exists()


def test_settings_of_the_user_do_not_change_the_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(desk.root.parent, {"rc": "--max-count=0\n", ".gitignore": "*\n", ".ignore": "*\n"})
    tree(desk.root, {"f": "hit\n", ".ignore": "f\n"})
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(desk.root.parent / "rc"))
    assert desk.ok("search", pattern="hit") == "f:1:hit"


def swap_for_ever(root: str, go_on: Event) -> None:
    while go_on.is_set():
        exchange(f"{root}/file", f"{root}/link")
        exchange(f"{root}/dir", f"{root}/out")


def test_no_search_tells_of_a_file_that_a_link_was_put_for(desk: Desk) -> None:
    """Without the comparison with the file itself, about one search in ten does."""
    secrets = desk.root.parent / "secrets"
    tree(secrets, {"f": "hit swordfish\n"})
    tree(
        desk.root, {"file": "hit\n", "dir/f": "hit\n"} | {f"more/{i}": "hit\n" for i in range(100)}
    )
    (desk.root / "link").symlink_to(secrets / "f")
    (desk.root / "out").symlink_to(secrets)
    context = multiprocessing.get_context("spawn")
    go_on = context.Event()
    go_on.set()
    swapper = context.Process(target=swap_for_ever, args=(str(desk.root), go_on))
    swapper.start()
    try:
        for _ in range(15):
            assert "swordfish" not in desk.ok("search", pattern="hit")
            for mode in ("files", "count"):
                assert desk.ok("search", pattern="swordfish", mode=mode) == "[no match]"
    finally:
        go_on.clear()
        swapper.join()
    assert swapper.exitcode == 0
