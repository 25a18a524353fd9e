"""Where only a bound of what was spent is known, every door says so: at most so much."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue import Agent, Outcome, Retinue, RunId
from retinue.cli.terminal.screen import Focus, Screen
from retinue.cli.tui.project_runs import ProjectRuns
from retinue.cli.tui.top_app import TopApp
from retinue.core.account import Account
from retinue.core.values import ModelInfo, Usage
from retinue.formats.money import money
from retinue.host import project_paths
from retinue.host.listing import RunListing
from retinue.host.record import RecordReader
from retinue.models.base import ModelRequest
from retinue.store.sqlite.sqlite_store import SqliteStore
from retinue.testing import Scripted, call
from retinue.view import format as view_format
from retinue.view import totals
from retinue.view.budget_table import table
from retinue.view.cells import plain
from retinue.view.export_formats import FORMATS, ExportSource
from retinue.view.rows import TreeView
from retinue.view.top_frame import TopList, top_frame
from retinue.view.updates import conclude
from tests.api.scripted_agents import hiring, last
from tests.api.test_kill_loops import die
from tests.cli.private_home import PrivateHome

EACH = Usage(input=80, output=20, nanos=100_000_000)
PRICED = ModelInfo(name="priced", price_in=1_000_000, price_out=1_000_000, max_output=50)


async def crash(store: Path) -> str:
    """A tree that was killed while its child was being answered, and has completed since."""
    called, is_killed = asyncio.Event(), False

    async def say(request: ModelRequest) -> str:
        if not is_killed:
            called.set()
            await asyncio.sleep(3_600)
        return "done"

    child = Agent("child", model=Scripted(say, info=PRICED, usage=EACH))
    cheap = ModelInfo(name="cheap", price_in=1, price_out=1)
    script = Scripted(lambda q: last(q) if q.turn else call("hire", tasks=["one"]), info=cheap)
    lead = Agent("lead", model=script, tools=[hiring(child)], staff=[child])
    retinue = Retinue(SqliteStore(store), agents=[lead])
    await retinue.__aenter__()
    run = await retinue.spawn(lead, "Look around.")
    await called.wait()
    await die(retinue)
    is_killed = True
    survivor = retinue._store.survivor()  # type: ignore[attr-defined]
    async with Retinue(survivor, agents=[lead]) as retinue:
        await retinue.wait(run)
        (below,) = (await retinue.tree(run)).children
        outcome, own = await retinue.outcome(run), await retinue.outcome(below.id)
    assert outcome is not None and own is not None
    # The call that was lost is in it with its bound, told apart from the one that was answered.
    usage = own.usage
    assert (
        usage.nanos == EACH.nanos + usage.nanos_estimated
        and usage.nanos_estimated == usage.estimated * 1_000_000
    )
    assert not usage.cost_is_known and not own.cost_is_known and not outcome.cost_is_known
    assert outcome.tree_usd_estimated == own.tree_usd_estimated == usage.nanos_estimated / 1e9 > 0
    assert outcome.tree_tokens_estimated == usage.estimated
    return run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateHome]:
    home = PrivateHome(tmp_path_factory.mktemp("bounds"))
    home.ok("ps")
    paths = project_paths.find(home.env, cwd=str(home.project))
    Path(paths.store).parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(crash(Path(paths.store)))
    yield home
    home.close()


def amounts(home: PrivateHome) -> tuple[str, str]:
    """Tokens and dollars of the tree, as they are with all bounds."""
    with RunListing(project_paths.find(home.env, cwd=str(home.project))) as shelf:
        (line,) = shelf.roots()
    assert line.usd is not None and line.usd > line.usd_estimated > 0
    tokens, usd = view_format.amounts(line)
    return tokens.removeprefix("at most "), usd.removeprefix("at most ")


def test_commands_say_at_most(home: PrivateHome) -> None:
    tokens, usd = amounts(home)
    row = home.ok("ps", "--all").splitlines()[1]
    assert row.endswith(f" ≤{usd}")
    assert home.ok("ps", "--tree", "--all").splitlines()[0].endswith(f" ≤{usd}")
    output = home.ok("show")
    assert f" · tree at most {tokens} tokens, at most {usd}" in output
    for name in ("md", "html"):
        assert f", at most {usd} · at most {tokens} tokens · " in home.ok(
            "export", "latest", "--format", name
        )


def test_json_says_that_the_cost_is_not_known(home: PrivateHome) -> None:
    lines = {line["label"]: line for line in home.lines("ps", "--all", "--tree", "--jsonl")}
    assert (
        not lines["child"]["cost_is_known"]
        and not lines["main" if "main" in lines else "lead"]["cost_is_known"]
    )
    (text,) = home.lines("show", "--json")
    assert text["cost_is_known"] is False
    assert 0 < text["estimated_cost_usd"] < text["total_cost_usd"]
    assert text["usage"]["estimated_tokens"] > 0
    assert {agent["label"]: agent["cost_is_known"] for agent in text["agents"]} == {
        "lead": True,
        "child": False,
    }
    assert {m: u["costIsKnown"] for m, u in text["modelUsage"].items()} == {
        "cheap": True,
        "priced": False,
    }
    *_, result = [
        json.loads(line)
        for line in home.ok("export", "latest", "--format", "stream-json").splitlines()
    ]
    assert (result["type"], result["cost_is_known"]) == ("result", False)


def test_a_budget_says_what_of_it_is_only_a_bound(home: PrivateHome) -> None:
    value = json.loads(home.ok("budget", "--json"))
    assert 0 < value["usd_estimated"] < value["spent"]["usd"]
    assert value["tokens_estimated"] > 0 and value["cost_is_known"] is False
    limit, spent = (None, 10**9, None, None), (500, 18 * 10**7, 1, 0)
    bound = Account(id="a", limit=limit, spent=spent, guess=(80, 10**6, 0))
    assert "at most $0.18" in table("a", bound) and "at most 500" in table("a", bound)
    unpriced = Account(id="a", limit=limit, spent=spent, guess=(0, 10**7, 80))
    assert "more than $0.17" in table("a", unpriced)
    assert "at most" not in table("a", Account(id="a", limit=limit, spent=spent))


def test_what_has_no_price_is_in_no_bound() -> None:
    """A lost call and one without a price: the bound of the first is none of both."""
    outcome = Outcome[str](
        id=RunId("r"), agent="a", state="completed", stop="done", text="", output="", error="",
        artifacts=(), last_tool="", usage=Usage(), tree_tokens=9, tree_usd=0.5, tree_turns=1,
        tree_calls=0, model_requested="m", model_resolved="m", model_used="m", children=(),
        created_ms=0, started_ms=0, ended_ms=0, cost_is_known=False, tree_usd_estimated=0.2,
    )  # fmt: skip
    assert outcome.cost == "at most $0.50"
    assert replace(outcome, tree_tokens_unpriced=4).cost == "more than $0.30"
    assert replace(outcome, tree_tokens_unpriced=4, tree_usd_estimated=0.5).cost == "unknown"


def test_the_views_mark_it_and_the_sum_of_today_is_no_fact(home: PrivateHome) -> None:
    tokens, usd = amounts(home)
    paths = project_paths.find(home.env, cwd=str(home.project))
    view = TreeView()
    with RecordReader(paths) as record:
        final = record.tree(RunListing(paths).roots()[0].id)
        source = ExportSource(record, final, "2026-11-18")
        assert all(FORMATS[name](source) for name in FORMATS)
    conclude(view, final)
    frame = "\n".join(line.plain for line in Screen(view).frame(Focus(), 0, 140, 40))
    assert f"≤{tokens}" in frame and f"≤{usd}" in frame
    board = ProjectRuns(paths, home.env)
    board.refresh()
    top = TopApp(board)
    lines = [plain(line) for line in top_frame(top._facts(), TopList(), board.rows(), 120, 20)]
    (line,) = RunListing(paths).roots()
    assert line.usd is not None
    known_usd = view_format.money(line.usd - line.usd_estimated)
    assert lines[1].startswith(f" today {known_usd}, at most {usd} · ")
    assert any(line.endswith(f"≤{usd}") for line in lines[4:]), lines
    board.close()
    spent = (
        totals.TreeSpending(0, 0.0).plus(totals.spent(final)).plus(totals.TreeSpending(1_000, 0.5))
    )
    assert not spent.cost_is_known and all(word.startswith("at most ") for word in spent.words)


def test_the_sum_of_today_has_only_facts_and_what_it_is_at_most(home: PrivateHome) -> None:
    with RunListing(project_paths.find(home.env, cwd=str(home.project))) as shelf:
        (line,) = shelf.roots()
        assert line.usd is not None and line.ended_at is not None
        exact_usd = line.usd - line.usd_estimated
        assert shelf.spent_since(line.created_at) == (exact_usd, line.usd, False)
        # It began before: how much of it came later is on no record.
        assert shelf.spent_since(line.created_at + 1) == (0.0, line.usd, False)
        assert shelf.spent_since(line.ended_at + 1) == (0.0, 0.0, False)
    assert view_format.sum_text(1.42, 1.61, False) == "$1.42, at most $1.61"
    assert (
        view_format.sum_text(1.42, 1.42, False) == "$1.42"
        and view_format.sum_text(0, 0, False) == "$0.00"
    )
    assert view_format.sum_text(1.42, 1.42, True) == "$1.42, more n/a"
    assert view_format.sum_text(0, 0, True) == "n/a"


def test_little_room_is_kept_and_nothing_is_rounded_down() -> None:
    numbers = (940, 18_940, 123_400, 999_999, 12_000_001)
    assert [view_format.tokens(n, is_bound=True, is_short=True) for n in numbers] == [
        "≤940", "≤19.0k", "≤124k", "≤1M", "≤13M",
    ]  # fmt: skip
    assert [money(usd, is_bound=True, is_short=True) for usd in (0.0012, 0.181, 12.0)] == [
        "≤$0.01", "≤$0.19", "≤$12.00",
    ]  # fmt: skip
    assert [view_format.tokens(n, is_bound=True) for n in (940, 18_901, 1_210_000)] == [
        "at most 940", "at most 19.0k", "at most 1.3M",
    ]  # fmt: skip
    assert [money(usd, is_bound=True) for usd in (0.18, 0.181, 0.00123)] == [
        "at most $0.18", "at most $0.19", "at most $0.0013",
    ]  # fmt: skip
    assert money(None, is_bound=True) == "n/a"
