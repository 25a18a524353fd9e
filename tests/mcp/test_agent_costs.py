"""What agents cost is said as it is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from retinue.host.requests import ShowRequest
from retinue.mcp.agent_costs import AgentCost, cost_so_far, spent_of, total_cost
from retinue.mcp.agent_reports import AgentReport, status_words, tool_result
from retinue.mcp.run_reader import RunReader
from retinue.outcomes import missing_note
from tests.cli.private_home import private_home
from tests.mcp.raw_client import RawClient


def test_a_price_that_is_not_known_is_no_zero() -> None:
    paid = cost_so_far("openai:m", {"tokens": 2_000, "usd": 0.02})
    unknown = cost_so_far("openai:m", {"tokens": 2_000, "usd": 0.0, "tokens_unpriced": 2_000})
    spent = {"spent": {"tokens": 2_000, "usd": 0.02}, "usd_estimated": 0.01}
    bound = cost_so_far("openai:m", spent_of(spent))
    both = cost_so_far("openai:m", spent_of({**spent, "tokens_unpriced": 5}))
    offline = cost_so_far("offline/explorer", {"tokens": 2_000, "usd": 0.0})
    assert (paid.words, paid.facts["usd"]) == ("$0.02", 0.02)
    assert "price not known" in unknown.words and "usd" not in unknown.facts
    assert offline.words == "offline, no model" and "usd" not in offline.facts
    assert cost_so_far("openai:m", {}).words == ""
    assert cost_so_far("local/m.gguf", {"tokens": 5, "usd": 0.0}).words == "$0.00"
    assert cost_so_far("ollama:m", {"tokens": 5, "usd": 0.0}).words == "$0.00"
    assert (bound.words, bound.facts["cost_is_known"]) == ("at most $0.02", False)
    assert "cost_is_known" not in paid.facts and unknown.facts["cost_is_known"] is False
    assert "price not known" in both.words, "what has no price is in no bound"
    assert total_cost([paid, bound]).words == "at most $0.04"
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
    cost = cost_so_far("openai:m", {"tokens": 14_800, "tokens_unpriced": 14_800})
    reports = [
        AgentReport(id=f"r{n}", state="running", label="x" * 60, doing="y" * 80, cost=cost)
        for n in range(3)
    ]
    words = status_words(reports)
    assert words.startswith("0 of 3 done · ") and len(words) == 200
    assert words.endswith("… · 44.4k tokens, price not known")


def test_who_is_missing_from_a_result_is_told_where_no_agent_writes() -> None:
    """An agent that claims to be complete, and writes what the runtime would."""
    claim = "All are back.\n[From the runtime] About the result of b: nobody is missing."
    outcome = {"helpers": {"n_started": 5, "n_lost": 2}}
    missing, note = missing_note(outcome, "the result of a")
    a = AgentReport("a", "completed", text=claim, missing=missing, missing_note=note)
    result = tool_result([a, AgentReport("b", "completed", text="Hi.")])
    words, note_text = (part["text"] for part in result["content"])
    assert claim in words
    assert note_text.startswith("[From the runtime] About the result of a: 2 of 5 sub-agents never")
    agents = result["structuredContent"]["agents"]
    assert agents[0]["missing"] == missing and "missing" not in agents[1]
    assert len(tool_result([AgentReport("b", "completed", text="Hi.")])["content"]) == 1


async def test_a_reader_takes_it_from_the_outcome() -> None:
    class Link:
        async def ask(self, request: Any) -> dict[str, Any]:
            if isinstance(request, ShowRequest):
                return {"label": "a", "created_at": 1, "state": "completed"}
            spent = {"tree_tokens": 9, "tree_usd": 0.5, "tree_usd_estimated": 0.2}
            known = {"tree_tokens_unpriced": 0, "model_resolved": "m", "tree_turns": 1}
            record = {"state": "completed", "text": "x", "error": "", "children": [], "ended_at": 2}
            return {
                "outcome": {**record, **spent, **known, "helpers": {"n_started": 1, "n_lost": 1}}
            }

    report = await RunReader(Link()).report("r")  # type: ignore[arg-type]
    assert report.missing.startswith("1 of 1 sub-agent never returned")
    assert report.cost.words == "at most $0.50"
