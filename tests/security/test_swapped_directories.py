"""The installed program with a hostile model: a lead sends a child to a directory and puts a link
in its place, by a background command in the sandbox. And what may not be read is not shown, by
whatever way it is asked for."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from retinue.testing import call
from tests.cli.private_home import PrivateHome, private_home
from tests.needs import needs

CANARY = "canary-nobody-may-see"
SECRET = "KEY=s3cr3t-value"
RUN = ("run", "-q", "--family", "fanout", "--yolo")
SWAP = (
    "until [ -e go ]; do sleep 0.02; done; mv sub aside; ln -s {outside} sub; touch swapped; "
    "sleep 60"
)
FLIP = "while :; do mv sub aside; ln -s {outside} sub; rm sub; mv aside sub; done"


class Hostile:
    """A lead and its child, each with what it calls one after the other; everything that they are
    sent is kept."""

    def __init__(self, lead: list[Any], child: list[Any], before: Any = None) -> None:
        self.lead, self.child, self._before = lead, child, before
        self.heard: list[str] = []

    async def __call__(self, request: Any) -> Any:
        self.heard += [m.text for m in request.messages]
        is_lead = "Be the lead" in request.messages[0].text
        n = sum(type(m).__name__ == "AssistantMessage" for m in request.messages)
        turns = self.lead if is_lead else self.child
        if not is_lead and n == 0 and self._before is not None:
            await asyncio.to_thread(self._before)
        if n < len(turns):
            return turns[n]
        return "Done." if is_lead else call("submit_result", result="done")

    @property
    def told(self) -> str:
        return "\n".join(self.heard)


def outside(home: PrivateHome) -> Path:
    """Beside the project, with the names that are in it."""
    path = home.folder / "outside"
    (path / "deep").mkdir(parents=True)
    for name in ("a.txt", "deep/b.txt"):
        (path / name).write_text(f"{CANARY}\n")
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    (path / ".git/description").write_text(CANARY)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


CALLS = [
    call("read", path="a.txt"),
    call("list", path=".", depth=3),
    call("search", pattern="canary|inside"),
    call("find", pattern="*.txt"),
    call("write", path="new.txt", content="evil"),
    call("write", path="deep/new/n.txt", content="evil"),
    call("edit", path="a.txt", old="canary", new="evil"),
    call("shell", command="cat a.txt deep/b.txt; echo evil > evil.txt; ls"),
    call("git", args=["status"]),
]


ISOLATED = {"lead": {"description": "l", "prompt": "Lead.", "isolation": "worktree"}}
WHO = ("-c", "user.name=a", "-c", "user.email=a@b")


def commit(folder: Path) -> None:
    shutil.rmtree(folder / ".git")
    (folder / "first.txt").write_text("first\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "x")):
        subprocess.run(["git", *WHO, *words], cwd=folder, check=True)


@needs("bwrap", "git")
@pytest.mark.parametrize("isolated", [False, True], ids=["in the project", "in a copy"])
def test_a_child_whose_directory_became_a_link_works_nowhere(
    tmp_path: Path, isolated: bool
) -> None:
    model = Hostile([], [*CALLS])
    with private_home(tmp_path, model) as home:
        commit(home.project)
        out = outside(home)
        rest = contents(out)
        where = [home.project]

        def swap() -> None:
            """The child is at work; now the lead's command is let loose, and has done it."""
            if isolated:
                where[:] = (home.folder / "data").glob("retinue/projects/*/*.tools/worktrees/*/")
            (where[0] / "go").touch()
            home.until(lambda: (where[0] / "swapped").exists())
            assert (where[0] / "sub").is_symlink()

        model._before = swap
        task = {"task": "work", "cwd": "sub", "mode": "work"}
        model.lead += [
            call("shell", command="mkdir -p sub/deep; echo inside > sub/a.txt"),
            call("shell", command=SWAP.format(outside=out), background=True),
            call("spawn_agents", tasks=[task]),
            call("spawn_agents", tasks=[{"task": "look", "cwd": "sub", "read_first": ["a.txt"]}]),
        ]
        agent = ("--agents", json.dumps(ISOLATED), "--agent", "lead") if isolated else ()
        result = home.real(*RUN, *agent, "Be the lead.")
        assert result.returncode == 0, result.stderr
        assert isolated == (where[0] != home.project)
        assert CANARY not in model.told
        assert contents(out) == rest
        assert model.told.count("was replaced by a symbolic link") >= len(CALLS)


@needs("bwrap")
def test_no_file_from_outside_is_handed_over_while_a_directory_is_swapped_all_the_time(
    tmp_path: Path,
) -> None:
    task = {"task": "look", "cwd": "sub", "read_first": ["a.txt"]}
    model = Hostile([], [])
    with private_home(tmp_path, model) as home:
        out = outside(home)
        model.lead += [
            call("shell", command="mkdir -p sub/deep; echo inside > sub/a.txt"),
            call("shell", command=FLIP.format(outside=out), background=True),
            *[call("spawn_agents", tasks=[task])] * 40,
        ]
        result = home.real(*RUN, "Be the lead.")
        assert result.returncode == 0, result.stderr
        assert CANARY not in model.told


DENIED = ("--disallowed-tools", "read(**/.env)")
WRONG = "KEY=s3cr3t-valuX"
PATCH = "*** Begin Patch\n*** Update File: {path}\n@@\n-KEY=guess\n+x\n*** End Patch"
MOVE = "*** Begin Patch\n*** Update File: .env\n*** Move to: free.txt\n*** End Patch"


@pytest.mark.parametrize(
    "turns",
    [
        [call("spawn_agents", tasks=[{"task": "look", "read_first": [".env"]}])],
        [call("spawn_agents", tasks=[{"task": "look", "read_first": ["link.txt"]}])],
        [call("spawn_agents", tasks=[{"task": "look", "cwd": "conf", "read_first": [".env"]}])],
        [call("read", path="link.txt")],
        [call("search", pattern="KEY"), call("search", pattern="KEY", path="link.txt")],
        [
            call("search", pattern="s3cr3t", mode="count"),
            call("search", pattern="s3cr3t", mode="files"),
        ],
        [
            call("edit", path=".env", old=WRONG, new="x"),
            call("edit", path="link.txt", old=WRONG, new="x"),
        ],
        [
            call("edit", path=".env", old="KEY=s3", new="KEY=s3"),
            call("edit", path=".env", old="KEY", new="WORD"),
        ],
        [
            call("edit", patch=PATCH.format(path=".env")),
            call("edit", patch=PATCH.format(path="link.txt")),
        ],
        [call("edit", patch=MOVE), call("read", path="free.txt")],
        [
            call("write", path=".env", content="x"),
            call("write", path=".env", content="x", expected_sha256="0" * 64),
        ],
    ],
)
def test_what_may_not_be_read_is_shown_by_nothing(tmp_path: Path, turns: list[Any]) -> None:
    model = Hostile([*turns], [])
    with private_home(tmp_path, model) as home:
        (home.project / "conf").mkdir()
        for name in (".env", "conf/.env"):
            (home.project / name).write_text(f"{SECRET}\nOTHER=1\n")
        (home.project / "link.txt").symlink_to(".env")
        result = home.real(*RUN, *DENIED, "Be the lead.")
        assert result.returncode == 0, result.stderr
        assert "s3cr3t-value" not in model.told.replace(WRONG, "")
        assert "OTHER" not in model.told
        assert (home.project / ".env").read_text() == f"{SECRET}\nOTHER=1\n"


GIT = [
    ["show", "HEAD:.env"],
    ["show", "HEAD"],
    ["show", "{blob}"],
    ["log", "-p"],
    ["log", "-L1,2:.env"],
    ["diff", "HEAD~1"],
    ["diff", "HEAD~1:.env", "HEAD:.env"],
    ["diff", "{blob}", "{other}"],
    ["blame", ".env"],
    ["blame", "conf/.env"],
    ["show", "-s", "--format=%B", "HEAD:conf/.env"],
    ["show", "tagged"],
    ["show", "HEAD@{{0}}:.env"],
    ["diff", "HEAD@{{0}}:.env", "HEAD:free.txt"],
    ["diff", "/dev/null", ".env"],
    ["show", "HEAD^{{/:x}}"],
    ["log", "-Ss3cr3t-value", "--oneline", "--stat"],
    ["status", "-v"],
]


@needs("bwrap", "git")
def test_what_may_not_be_read_is_not_shown_from_the_history_either(tmp_path: Path) -> None:
    model = Hostile([], [])
    with private_home(tmp_path, model) as home:
        shutil.rmtree(home.project / ".git")

        def git(*words: str) -> str:
            process = subprocess.run(
                ["git", *WHO, *words], cwd=home.project, check=True, capture_output=True, text=True
            )
            return process.stdout.strip()

        git("init", "-q")
        (home.project / "conf").mkdir()
        for n, text in enumerate(("one", "two")):
            for name in (".env", "conf/.env"):
                (home.project / name).write_text(f"{SECRET}-{text}\n")
            (home.project / "free.txt").write_text(f"free-{text}\n")
            git("add", "-A")
            git("commit", "-qm", f"commit {n}")
        names = {"blob": git("rev-parse", "HEAD:.env"), "other": git("rev-parse", "HEAD~1:.env")}
        git("tag", "tagged", names["blob"])
        model.lead += [call("git", args=[w.format(**names) for w in words]) for words in GIT]
        model.lead += [call("git", args=["show", "HEAD:free.txt"])]
        result = home.real(*RUN, *DENIED, "Be the lead.")
        assert result.returncode == 0, result.stderr
        assert "KEY=" not in model.told
        assert "+free-two" in model.told and "\nfree-two" in model.told, "the rest is shown"


def test_without_a_tool_that_reads_nothing_is_shown(tmp_path: Path) -> None:
    agents = {"lead": {"description": "l", "prompt": "Lead.", "tools": ["edit", "write"]}}
    model = Hostile(
        [
            call("edit", path="notes.txt", old=WRONG, new="x"),
            call("edit", patch=PATCH.format(path="notes.txt")),
            call("edit", path="notes.txt", old="OTHER=1", new="OTHER=2"),
            call("write", path="notes.txt", content="x"),
        ],
        [],
    )
    with private_home(tmp_path, model) as home:
        (home.project / "notes.txt").write_text(f"{SECRET}\nOTHER=1\n")
        result = home.real(*RUN, "--agents", json.dumps(agents), "--agent", "lead", "Be the lead.")
        assert result.returncode == 0, result.stderr
        assert "s3cr3t-value" not in model.told.replace(WRONG, "")
        assert "no tool that reads" in model.told
        assert "OTHER=2" in (home.project / "notes.txt").read_text()


def test_without_a_tool_that_reads_no_file_is_handed_over(tmp_path: Path) -> None:
    task = {"task": "look", "read_first": ["notes.txt"], "mode": "work"}
    model = Hostile([call("spawn_agents", tasks=[task])], [])
    with private_home(tmp_path, model) as home:
        (home.project / "notes.txt").write_text(f"{SECRET}\n")
        result = home.real(*RUN, "--disallowed-tools", "read,search,shell", "Be the lead.")
        assert result.returncode == 0, result.stderr
        assert "s3cr3t-value" not in model.told
        assert "no tool that reads" in model.told
