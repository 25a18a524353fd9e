"""A run that a limit has stopped continues with a new one, as its last line says."""

from __future__ import annotations

from pathlib import Path

from tests.cli.private_home import Llm, PrivateHome


def test_a_run_that_has_ended_continues_with_a_budget_of_its_own(tmp_path: Path) -> None:
    with Llm(["Here."]) as llm:
        env = {"ANTHROPIC_BASE_URL": llm.llm.url, "ANTHROPIC_API_KEY": "sk-ant-very-secret"}
        home = PrivateHome(tmp_path, **env)
        try:
            home.ok("run", "-m", "anthropic:claude-sonnet-5-5", "first")
            home.ok("resume", "latest", "more", "--max-budget-usd", "2")
            (budget,) = [
                line for line in home.ok("show", "latest").splitlines() if line.startswith("budget")
            ]
            spent, rest = (float(part.rpartition("$")[2]) for part in budget.split(", "))
            assert rest == 2 and 0 < spent < 0.01
        finally:
            home.close()
