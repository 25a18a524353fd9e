"""What agents cost is said as it is known."""

from __future__ import annotations

from pathlib import Path

from retinue.mcp.agent_costs import AgentCost, cost_so_far, total_cost
from retinue.mcp.agent_reports import AgentReport, status_words
from tests.cli.private_home import private_home
from tests.mcp.raw_client import RawClient


def test_a_price_that_is_not_known_is_no_zero() -> None:
    paid = cost_so_far("openai:m", {"tokens": 2_000, "usd": 0.02})
    unknown = cost_so_far("openai:m", {"tokens": 2_000, "usd": 0.0})
    offline = cost_so_far("offline/explorer", {"tokens": 2_000, "usd": 0.0})
    assert (paid.words, paid.facts["usd"]) == ("$0.02", 0.02)
    assert "price not known" in unknown.words and "usd" not in unknown.facts
    assert offline.words == "offline, no model" and "usd" not in offline.facts
    assert cost_so_far("openai:m", {}).words == ""
    assert cost_so_far("local/m.gguf", {"tokens": 5, "usd": 0.0}).words == "$0.00"
    assert total_cost([paid, offline]) == paid
    assert total_cost([paid, unknown]).usd is None
    assert total_cost([offline, offline]).words == "offline, no model"
    assert total_cost([]).words == ""
    assert AgentCost(10, 0.5, is_bound=True).words == "at most $0.50"


def test_agents_are_called_after_their_tasks_and_cost_what_is_known(tmp_path: Path) -> None:
    with private_home(tmp_path) as home, RawClient(home) as client:
        client.initialize("2025-06-18")
        task = "Look at the parser.\nSay what it copies."
        for result in (
            client.tool("delegate", tasks=[task]),
            client.tool("delegate", tasks=["map this"], model="offline/explorer"),
            client.tool("agents"),
        ):
            for agent in result["structuredContent"]["agents"]:
                is_offline = agent["label"] == "map this"
                assert agent["label"] in ("map this", "Look at the parser")
                expected = "offline, no model" if is_offline else "price not known"
                assert expected in agent["cost"] and "usd" not in agent
            assert "$" not in result["content"][0]["text"]
        fork = client.tool("fork", id=agent["id"], task="And the lexer?")
        assert fork["structuredContent"]["agents"][0]["label"] == "And the lexer?"


def test_a_status_that_is_cut_still_says_what_it_costs() -> None:
    cost = cost_so_far("openai:m", {"tokens": 14_800, "usd": 0.0})
    reports = [
        AgentReport(id=f"r{n}", state="running", label="x" * 60, doing="y" * 80, cost=cost)
        for n in range(3)
    ]
    words = status_words(reports)
    assert words.startswith("0 of 3 done · ") and len(words) == 200
    assert words.endswith("… · 44.4k tokens, price not known")
