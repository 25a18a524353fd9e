"""A run that has ended is continued after something has put a link in the place of its directory:
it works nowhere, and not where the link leads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.testing import call
from tests.cli.private_home import private_home
from tests.mcp.raw_client import RawClient
from tests.needs import needs
from tests.security.test_swapped_directories import CANARY, contents, outside

CALLS = [
    call("read", path="a.txt"),
    call("search", pattern="canary|inside"),
    call("list", path="."),
    call("write", path="evil.txt", content="evil"),
    call("edit", path="a.txt", old="canary", new="evil"),
    call("shell", command='cat a.txt "$PWD"/../*/a.txt; echo evil > evil.txt'),
    call("git", args=["log"]),
]


def again(request: Any) -> Any:
    """All calls after each message of the user, and then what came of them."""
    texts = [m.text for m in request.messages if type(m).__name__ == "ToolMessage"]
    n_before = len(CALLS) * (sum(type(m).__name__ == "UserMessage" for m in request.messages) - 1)
    n = len(texts) - n_before
    return CALLS[n] if n < len(CALLS) else "\n=====\n".join(texts[n_before:])


@needs("bwrap", "git", "rg")
@pytest.mark.parametrize("where", ["sub", "above", "added"])
@pytest.mark.parametrize("verb", ["resume", "fork"])
def test_a_continued_run_follows_no_link_that_came_after_it(
    tmp_path: Path, verb: str, where: str
) -> None:
    with private_home(tmp_path, again) as home:
        out = outside(home)
        rest = contents(out)
        sub = home.project / "sub" / "deep"
        sub.mkdir(parents=True)
        (sub / "a.txt").write_text("inside\n")
        added = home.project / "added"
        added.mkdir()
        first = home.real("run", "--yolo", "-p", "--add-dir", str(added), "go", cwd=sub)
        assert first.returncode == 0 and "inside" in first.stdout, first
        (out / "deep" / "a.txt").write_text(f"{CANARY}\n")
        rest = contents(out)
        moved = {"sub": sub, "above": sub.parent, "added": added}[where]
        moved.rename(home.folder / "aside")
        moved.symlink_to(out)
        result = home.real(verb, "latest", "again")
        assert result.returncode == 0, result
        assert CANARY not in result.stdout and "replaced by a symbolic link" in result.stdout, (
            result
        )
        assert contents(out) == rest


@needs("bwrap", "git", "rg")
def test_a_client_is_led_nowhere_by_a_link_in_the_place_of_its_root(tmp_path: Path) -> None:
    with private_home(tmp_path, again) as home:
        out = outside(home)
        rest = contents(out)
        root = home.project / "sub"
        root.mkdir()
        (root / "a.txt").write_text("inside\n")
        flags = ("--root", str(root), "--permission-mode", "bypassPermissions")
        with RawClient(home, *flags) as client:
            client.initialize("2025-06-18")
            first = client.tool("delegate", tasks=["go"])
            assert "inside" in str(first), first
            (agent,) = first["structuredContent"]["agents"]
            root.rename(home.folder / "aside")
            root.symlink_to(out)
            for name, arguments in (
                ("delegate", {"tasks": ["go"]}),
                ("delegate", {"tasks": ["go"], "directory": str(root)}),
                ("delegate", {"tasks": ["go"], "directory": "deep"}),
                ("send", {"id": agent["id"], "text": "again"}),
                ("fork", {"id": agent["id"], "task": "again"}),
            ):
                answer: Any = client.tool(name, **arguments)
                if not answer["isError"]:  # it goes on in its directory, which no tool opens
                    ids = [a["id"] for a in answer["structuredContent"]["agents"]]
                    answer = client.tool("result", ids=ids)
                    assert "replaced by a symbolic link" in str(answer), (name, arguments, answer)
                assert CANARY not in str(answer), (name, arguments, answer)
        assert contents(out) == rest
