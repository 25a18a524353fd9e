"""A cassette is kept beside its test, where everybody reads it: no secret is in it."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from retinue import Agent, Retinue, tool
from retinue.testing import Cassette, Scripted, call, run_virtual

SECRET = "cnry-abcdefghijkl-12345"


@pytest.mark.parametrize("whose", ["model", "environment", "given", "tool"])
def test_nothing_is_written_down_of_a_secret(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Keyed(Scripted):
        secrets: ClassVar = {"KEY": SECRET} if whose == "model" else {}

    if whose == "environment":
        monkeypatch.setenv("SERVICE_TOKEN", SECRET)

    @tool(restart="pure")
    def look() -> str:
        """Look."""
        if whose == "tool":
            raise ValueError(f"it is {SECRET}")
        return f"it is {SECRET}"

    value = {"GIVEN": SECRET} if whose in ("given", "tool") else {}
    model = Keyed([call("look"), f"I say {SECRET}."], name="m")

    async def play(agent: Agent) -> str:
        async with Retinue(tmp_path / "r.db", secrets=value) as retinue:
            return (await retinue.run(agent, "Go.")).text

    cassette = Cassette(tmp_path / "c.jsonl", secrets=value)
    agent = Agent("a", model=cassette.record(model), tools=[cassette.tool(look)])
    assert "[redacted:" in run_virtual(play(agent)), "the runtime knows them too"
    for file in tmp_path.iterdir():
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()
    for file in tmp_path.glob("r.db*"):
        file.unlink() if file.is_file() else None
    monkeypatch.delenv("SERVICE_TOKEN", raising=False)
    cassette = Cassette(tmp_path / "c.jsonl")
    agent = Agent("a", model=cassette.replay(model.info), tools=[cassette.tool(look)])
    assert "I say [redacted:" in run_virtual(play(agent))
    cassette.check()
