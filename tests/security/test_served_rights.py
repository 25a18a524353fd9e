"""What a token of `retinue serve` lets a client do, and that no run sees the file of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.testing import call
from tests.cli.private_home import private_home
from tests.needs import needs
from tests.security.prepared import turns
from tests.security.served import ADMIN, ALICE, serving

SMALL = """---
name: small
description: d
tools: [read]
budget: {max_tokens: 30000}
max_turns: 3
timeout: 100s
---
Small.
"""
FREE = {"terms": {"mode": "bypassPermissions"}}


@needs("bwrap", "rg")
def test_the_file_of_tokens_is_hidden_wherever_it_lies(tmp_path: Path) -> None:
    model = turns(
        call("read", path="tokens.txt"),
        call("shell", command="rev < tokens.txt; rev < link; cp tokens.txt copy; rev < copy"),
        call("search", pattern="token-"),
        call("edit", path="tokens.txt", old="admin", new="x"),
        call("list", path="."),
    )
    with private_home(tmp_path, model) as home:
        file = home.project / "tokens.txt"
        (home.project / "link").symlink_to("tokens.txt")
        with serving(home, file) as served:
            texts = served.text(served.start(ADMIN, **FREE))
            text = file.read_text()
        assert ADMIN[::-1] not in texts and "read,run" not in texts, texts
        assert texts.count("belongs to Retinue") == 2 and "tokens.txt\t" not in texts, texts
        # The next host, which serves nothing, hides it too.
        again = home.ok("run", "--yolo", "-p", "go")
        assert ADMIN[::-1] not in again and "read,run" not in again, again
        assert file.read_text() == text


@pytest.mark.parametrize(
    "terms", [{"budget": {"tokens": 40_000}}, {"max_turns": 4}, {"timeout_seconds": 101}], ids=str
)
def test_the_right_to_start_is_not_one_to_raise_an_agents_limits(
    tmp_path: Path, terms: dict[str, Any]
) -> None:
    with private_home(tmp_path) as home:
        (home.project / ".retinue" / "agents").mkdir(parents=True)
        (home.project / ".retinue" / "agents" / "small.md").write_text(SMALL)
        home.ok("trust", "--yes")
        with serving(home, tmp_path / "tokens.txt") as served:
            first = served.start(ALICE, agent="small")
            served.text(first)
            body = {"task": "go", "terms": terms}
            for path, more in (
                ("/api/v1/runs", {"agent": "small"}),
                (f"/api/v1/runs/{first}/resume", {}),
                (f"/api/v1/runs/{first}/fork", {}),
            ):
                status, answer = served.ask(ALICE, "POST", path, {**body, **more})
                assert status == 403 and "approve" in answer["detail"], answer
                status, answer = served.ask(ADMIN, "POST", path, {**body, **more})
                assert status == 201, answer
            less = {"task": "go", "agent": "small", "terms": {"budget": {"tokens": 20_000}}}
            assert served.ask(ALICE, "POST", "/api/v1/runs", less)[0] == 201


@pytest.mark.parametrize("verb", ["resume", "fork"])
def test_a_limit_that_is_set_for_a_continued_run_lifts_no_other(tmp_path: Path, verb: str) -> None:
    with private_home(tmp_path) as home:
        (home.project / ".retinue" / "agents").mkdir(parents=True)
        (home.project / ".retinue" / "agents" / "small.md").write_text(SMALL)
        home.ok("trust", "--yes")
        with serving(home, tmp_path / "tokens.txt") as served:
            first = served.start(ALICE, agent="small")
            served.text(first)
            body = {"task": "more", "terms": {"budget": {"calls": 9}}}
            _, new = served.ask(ALICE, "POST", f"/api/v1/runs/{first}/{verb}", body)
            _, reply = served.ask(ADMIN, "GET", f"/api/v1/runs/{new['run']}/budget")
            assert reply["spending"]["limit"] == {"tokens": 30_000, "calls": 9}
