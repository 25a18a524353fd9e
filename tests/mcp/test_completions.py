"""Arguments can be completed, with what is the guest's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.private_home import private_home
from tests.mcp.raw_client import RawClient, first_id

TRANSCRIPT = {"type": "ref/resource", "uri": "retinue://runs/{id}/transcript"}


def test_an_address_is_completed_with_the_agents_of_the_guest(tmp_path: Path) -> None:
    with (
        private_home(tmp_path) as home,
        RawClient(home, "--guest", "one") as one,
        RawClient(home, "--guest", "two") as two,
    ):
        for client in (one, two):
            assert client.initialize()["capabilities"]["completions"] == {}
        run = first_id(one.tool("delegate", tasks=["say it"]))

        def values(client: RawClient, typed: str) -> dict[str, Any]:
            argument = {"name": "id", "value": typed}
            request = {"ref": TRANSCRIPT, "argument": argument}
            completions: dict[str, Any] = client.ask("completion/complete", request)["completion"]
            return completions

        assert values(one, run[:9]) == {"values": [run], "total": 1, "hasMore": False}
        assert values(one, "x")["values"] == [] == values(two, "")["values"]
        goal = {"name": "goal", "value": "a"}
        prompt = {"type": "ref/prompt", "name": "delegate"}
        reply = one.ask("completion/complete", {"ref": prompt, "argument": goal})
        assert reply["completion"]["values"] == []
        for ref, argument in (
            (None, goal),
            (prompt, None),
            (prompt, {"name": "other", "value": ""}),
            (prompt, {"name": "goal", "value": 7}),
            ({"type": "ref/other", "name": "delegate"}, goal),
            ({"type": "ref/resource", "uri": ["x"]}, goal),
        ):
            params = {"ref": ref, "argument": argument}
            assert one.error("completion/complete", params)["code"] == -32602
