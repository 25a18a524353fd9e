"""What a user's file says about runs that have ended reaches the host, which deletes them."""

from __future__ import annotations

from pathlib import Path

from retinue.host.host_rules import retention_of
from retinue.option_types import Retention
from tests.cli.private_home import private_home


def test_the_settings_of_a_user_reach_the_host(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: "done") as home:
        for n in range(5):
            home.ok("run", f"task {n}")
        home.ok("host", "stop")
        assert len(home.lines("ps", "--all", "--jsonl")) == 5
        file = home.folder / "config" / "retinue" / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("[retention]\ncount = 2\nage = '30d'\n")
        home.ok("run", "the last")
        home.until(lambda: len(home.lines("ps", "--all", "--jsonl")) <= 3)
        tasks = [line["task"] for line in home.lines("ps", "--all", "--jsonl")]
        assert tasks[0] == "the last" and len(tasks) <= 3


def test_what_is_told_in_the_environment() -> None:
    assert not retention_of({"HOME": "/x"}).is_on
    text = {
        "RETINUE_RETENTION_AGE": "2d",
        "RETINUE_RETENTION_COUNT": "7",
        "RETINUE_RETENTION_SIZE_MB": "3",
    }
    assert retention_of(text) == Retention(age_seconds=172_800.0, count=7, size=3 << 20)
