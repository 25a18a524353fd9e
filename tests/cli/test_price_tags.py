"""What a fan-out should cost is said when it starts and when it is asked for; what came of it in
`show` and in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue.core.cache_figures import Tag
from retinue.core.spec import ForkPoint, ParentCall, RunRequest, RunSpec
from retinue.host.listing import cache_json
from retinue.testing import call
from retinue.view import format as view_format
from retinue.view.fan_out_costs import OLD_MS, SETTLED_MS, FanOuts
from tests.cli.private_home import private_home

PRICED = ("--model", "openai-chat:gpt-5")
FANOUT = ("--family", "fanout")
FOUR = [{"task": f"count to {n}"} for n in range(4)]
FORKED = {
    "n": 5,
    "tokens": 420_000,
    "cached_tokens": 420_000,
    "usd": 0.42,
    "usd_without_cache": 1.26,
    "is_fork": True,
}


def lead(request: Any) -> Any:
    """Hands four tasks to sub-agents, then sums up; they answer at once."""
    if "Delegate" not in request.messages[0].text:
        return call("submit_result", result="counted")
    is_done = any(type(m).__name__ == "ToolMessage" for m in request.messages)
    return "All have counted." if is_done else call("spawn_agents", tasks=FOUR)


def test_a_fan_out_is_told_with_its_price_when_it_starts(tmp_path: Path) -> None:
    with private_home(tmp_path, lead) as home:
        result = home.real("run", *PRICED, *FANOUT, "Delegate it.")
        (line,) = [line for line in result.stderr.splitlines() if "sub-agents of about" in line]
        assert (
            "4 sub-agents of about " in line
            and ": input about $" in line
            and line.endswith(" without the cache")
        )


def test_what_was_expected_and_what_came_is_shown_for_each_run_and_for_the_tree(
    tmp_path: Path,
) -> None:
    with private_home(tmp_path, lead) as home:
        lines = home.lines("run", *PRICED, *FANOUT, "--json", "Delegate it.")
        tags = [line["price_tag"] for line in lines if line.get("subtype") == "task_started"]
        assert [tag["cached_tokens"] > 0 for tag in tags] == [False, True, True, True]
        assert all(0 < tag["usd"] <= tag["usd_without_cache"] for tag in tags)
        ends = [line["cache"] for line in lines if line.get("subtype") == "task_notification"]
        total = lines[-1]["cache"]
        assert sum(end["read_tokens"] for end in ends) < total["read_tokens"]
        assert total["read_tokens"] == pytest.approx(total["expected_tokens"], rel=0.01), (
            "heads are counted in bytes"
        )
        assert (
            total["saved_usd"] == pytest.approx(total["expected_usd"], rel=0.01)
            and total["saved_usd"] > 0
        )
        text = home.ok("show")
        assert f"cache    {view_format.cache(total)}" in text.splitlines()
        (output,) = home.lines("show", "--json")
        assert output["cache"] == total
        assert [agent["price_tag"] for agent in output["agents"][1:]] == tags
        assert (
            sum(agent["cache"]["read_tokens"] for agent in output["agents"]) == total["read_tokens"]
        )
        assert home.lines("ps", "--jsonl")[0]["cache"] == total
        home.ok("host", "stop")
        assert home.lines("show", "--json")[0]["cache"] == total, "without a host too"


def test_a_model_without_a_price_has_tokens_and_no_dollars(tmp_path: Path) -> None:
    with private_home(tmp_path, lead) as home:
        result = home.real("run", *FANOUT, "Delegate it.")
        (line,) = [line for line in result.stderr.splitlines() if "sub-agents of about" in line]
        assert line.endswith(" tokens") and "$" not in line
        (output,) = home.lines("show", "--json")
        assert (
            output["cache"]["saved_usd"] is None and output["agents"][1]["price_tag"]["usd"] is None
        )
        assert "$" not in next(
            line for line in home.ok("show").splitlines() if line.startswith("cache")
        )


def test_who_is_asked_to_permit_a_fan_out_sees_what_it_would_cost(tmp_path: Path) -> None:
    with private_home(tmp_path, lead) as home:
        (tmp_path / "config" / "retinue").mkdir(parents=True, exist_ok=True)
        (tmp_path / "config" / "retinue" / "config.toml").write_text(
            '[permissions]\nask = ["spawn_agents"]\n'
        )
        id = home.ok("run", "--bg", *PRICED, *FANOUT, "Delegate it.")
        home.until(lambda: home.runs()[0]["state"] == "needs_input")
        (value,) = json.loads(home.ok("approve", "--json"))
        tag = value["price_tag"]
        assert tag["n"] == 4 and 0 < tag["usd"] < tag["usd_without_cache"]
        assert view_format.price_tag(tag) in home.ok("approve")
        home.ok("approve", id, "--question", value["id"][:8])
        home.ok("wait", id)
        (line,) = home.lines("show", id, "--json")
        recorded = [agent["price_tag"]["usd"] for agent in line["agents"][1:]]
        assert tag["usd"] == pytest.approx(sum(recorded), rel=0.2), "about what they then cost"


def child(n: int, turn: int = 1, tag: Tag | None = None, **fields: Any) -> RunSpec:
    slot = ParentCall(turn=turn, index=n, item=0, call_id=f"c{n}")
    tag = tag or Tag(prompt=84_000, cached=84_000, nanos=84_000_000, plain_nanos=252_000_000)
    order = RunRequest(agent="one", task="go")
    return RunSpec(
        id=f"r{n}",
        request=order,
        root="top",
        parent="top",
        parent_call=slot,
        tag=tag,
        created_at=1_000 + n,
        **fields,
    )


def test_forks_of_one_turn_are_told_together_whichever_calls_started_them() -> None:
    fan_outs = FanOuts()
    for n in range(5):
        fan_outs.add(child(n, base=ForkPoint(conversation="top", length=4)))
        assert fan_outs.take(5_000 + n) == [], "others may follow, also when one comes late to look"
    assert fan_outs.is_open
    assert fan_outs.take(5_004 + SETTLED_MS) == [
        "5 forks of about 84.0k tokens: input about $0.42, $1.26 without the cache"
    ]
    assert fan_outs.take(9_000) == [] and not fan_outs.is_open


def test_what_is_free_old_or_a_single_child_is_not_told() -> None:
    fan_outs = FanOuts()
    fan_outs.add(child(0))
    assert fan_outs.take(9_000, 0) == [], "one that starts afresh"
    for n in range(2):
        fan_outs.add(child(n, tag=Tag(prompt=9, nanos=0, plain_nanos=0)))
    assert fan_outs.take(9_000, 0) == [], "free"
    for n in range(2):
        fan_outs.add(child(n))
    assert fan_outs.take(1_001 + OLD_MS, 0) == [], "long ago"
    assert not fan_outs.is_open


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({}, "5 forks of about 84.0k tokens: input about $0.42, $1.26 without the cache"),
        ({"n": 1, "tokens": 900, "usd": 1.26, "is_fork": False},
         "1 sub-agent of about 900 tokens: input about $1.26"),
        ({"usd": None, "usd_without_cache": None}, "5 forks of about 84.0k tokens"),
    ],
)  # fmt: skip
def test_a_price_tag_is_one_line(changed: dict[str, Any], text: str) -> None:
    assert view_format.price_tag({**FORKED, **changed}) == text


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({}, ""),
        ({"expected": 84_000, "read": 79_200, "expected_nanos": 230_000_000,
          "saved_nanos": 210_000_000},
         "79.2k tokens read of 84.0k expected, about $0.21 saved of $0.23"),
        ({"expected": 84_000, "written": 84_000, "expected_nanos": 230_000_000,
          "saved_nanos": -60_000_000},
         "0 tokens read of 84.0k expected, about $0.06 more than without it"),
        ({"expected": 84_000, "read": 79_200, "unpriced": 84_000},
         "79.2k tokens read of 84.0k expected"),
        ({"read": 5_000, "saved_nanos": 10_000_000},
         "5.0k tokens read of 0 expected, about $0.01 saved"),
    ],
)  # fmt: skip
def test_what_a_cache_gave_is_one_line(figures: dict[str, int], text: str) -> None:
    assert view_format.cache(cache_json(figures)) == text
