"""Further attacks on permits and copies that once succeeded."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from retinue.core import permits
from retinue.core.values import Call, Capabilities, Guard
from retinue.sandbox.worktree import Worktrees
from tests.needs import needs

WRITE = Guard(risk="write", subject="path", guarded=True)
FETCH = Guard(risk="network", subject="url", guarded=True)


def verdict(name: str, guard: Guard, rule: str, **args: object) -> str:
    held = Capabilities(rules=(rule,), mode="bypassPermissions")
    call = Call(id="c", name=name, args=json.dumps(args))
    return permits.rule_on([("run", held)], call, guard, (), "", ["/ws"]).verdict


@pytest.mark.parametrize("pattern", ["**/.env", "**", "**/*v"])
def test_a_pattern_that_begins_with_two_stars_denies_in_every_root_of_the_run(pattern: str) -> None:
    assert verdict("write", WRITE, f"deny: write({pattern})", path="/other/.env") == "deny"
    assert permits.denied_path([("/ws", (f"deny: write({pattern})",))], "write", "/other/.env")


@pytest.mark.parametrize("path", ["/../etc/passwd", "../../etc/passwd"])
def test_there_is_nothing_above_the_top(path: str) -> None:
    assert verdict("write", WRITE, "deny: write(/etc/**)", path=path) == "deny"


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("http://de\u00adnied.com/", "denied.com"),
        ("http://de\u200bnied.com/", "denied.com"),
        ("http://xn--bcher-kva.de/", "b\u00fccher.de"),
        ("http://b\u00fccher.de/", "xn--bcher-kva.de"),
        ("http://[::1]/", "[::1]"),
    ],
)
def test_a_denied_domain_is_compared_as_the_client_asks_for_it(url: str, domain: str) -> None:
    assert verdict("fetch", FETCH, f"deny: fetch(domain:{domain})", url=url) == "deny"


def git(where: Path, *args: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    return subprocess.run(["git", *who, "-C", str(where), *args], check=True, capture_output=True, text=True).stdout


def repository(top: Path) -> Path:
    top.mkdir(parents=True)
    (top / "a.txt").write_text("one\n")
    git(top, "init", "-q", "-b", "main")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    return top


@needs("git")
def test_a_forged_submodule_runs_nothing_outside_of_the_sandbox(tmp_path: Path) -> None:
    """The commit has a submodule; the run puts a repository in its place, at the commit that is on record (so that git
    looks inside for changes), with a filter, and stands in the way of what would rename its `.git`."""
    top, ran = repository(tmp_path / "top"), tmp_path / "ran"
    git(top, "submodule", "add", "-q", str(repository(tmp_path / "sub")), "mod")
    git(top, "commit", "-qm", "mod")

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        copy = Path(await trees.open("r1", str(top)))
        mod = copy / "mod"
        git(mod, "init", "-q")
        (mod / "f").write_text("hi\n")
        (mod / ".gitattributes").write_text("* filter=x\n")
        git(mod, "add", ".")
        git(mod, "commit", "-qm", "x")
        git(mod, "config", "filter.x.clean", f"touch {ran}; cat")
        (mod / "f").write_text("other\n")
        os.utime(mod / "f", (1, 1))
        (mod / "dot-git" / "x").mkdir(parents=True)
        known = git(copy, "ls-files", "-s", "mod").split()[1]
        (mod / ".git" / git(mod, "symbolic-ref", "HEAD").strip()).write_text(f"{known}\n")
        await trees.close("r1", "task")

    asyncio.run(main())
    assert not ran.exists()
