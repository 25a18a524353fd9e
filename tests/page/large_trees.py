"""Large trees in the page, measured in Chromium: 1,000 agents, 26 hours, 10,000 updates.
`python -m tests.page.large_trees` (`make page`) prints the figures and fails above the limits."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, CDPSession, Page

from retinue import Agent, Retinue, tool
from retinue.core.messages import ModelReply
from retinue.models.base import ModelRequest
from retinue.runtime.clock import SystemClock
from retinue.testing import Scripted, call
from tests.api.scripted_agents import hiring
from tests.host.served import Served, served
from tests.page.browser import chromium, opened, scripted
from tests.waiting import until

HOUR = 3_600_000
LIMITS = {"first_row_ms": 1_000, "update_ms": 50, "rows_in_page": 100}
MOST_KEPT = {"step": 2_000, "text": 2_000_000}
"""Bytes of heap that one step may leave behind, and a long reply in 10,000 pieces."""
# When the first row was there, and how long each piece of work kept the browser busy, with the
# rendering that it caused: that is done in the microtasks behind it. A step is heard at once and
# painted later, by a timer.
PROBE = """
performance.mark('opened');
window.seen = { first: 0, steps: 0, tasks: [], paints: [] };
new MutationObserver((_, me) => {
  if (!document.querySelector('[role=treeitem]')) return;
  window.seen.first = performance.now();
  me.disconnect();
}).observe(document, { childList: true, subtree: true });
const timed = (work, into = 'tasks') => {
  const began = performance.now();
  work();
  const end = () => window.seen[into].push(performance.now() - began);
  queueMicrotask(() => queueMicrotask(() => queueMicrotask(end)));
};
const timeout = window.setTimeout;
window.setTimeout = (work, ms, ...rest) => timeout(() => timed(work, 'paints'), ms, ...rest);
const interval = window.setInterval;
window.setInterval = (work, ms, ...rest) => interval(() => timed(work, 'paints'), ms, ...rest);
const listen = EventSource.prototype.addEventListener;
EventSource.prototype.addEventListener = function (name, hear, ...rest) {
  return listen.call(this, name, (event) => {
    if (name === 'step') window.seen.steps++;
    timed(() => hear(event));
  }, ...rest);
};
"""


class Crowd:
    """A lead with many workers: each calls its tool `n_calls` times, the last ones when `go` is
    set."""

    def __init__(self, n: int, n_calls: int = 1) -> None:
        self.go = threading.Event()

        @tool(restart="pure")
        async def step(n: int) -> str:
            """Take a step."""
            await until(self.go.is_set)
            return "ok"

        def work(q: Any) -> Any:
            return call("step", n=q.turn) if q.turn < n_calls else "Done."

        def lead(q: Any) -> Any:
            tasks = [f"part {i} of the map" for i in range(n)]
            return call("hire", tasks=tasks) if q.turn == 0 else "All are back."

        worker = scripted("worker", work, tools=[step], max_turns=n_calls + 5)
        self.agents = [scripted("lead", lead, tools=[hiring(worker)], staff=[worker]), worker]


class Wandering(SystemClock):
    """A clock that can be put forward."""

    def __init__(self, ahead_ms: int) -> None:
        super().__init__()
        self.ahead_ms = ahead_ms

    def now(self) -> int:
        return super().now() + self.ahead_ms


def long_tree(store: Path, hours: int = 26, n: int = 30) -> str:
    """A tree whose agents ended one after the other over so many hours, up to now."""
    clock = Wandering(-hours * HOUR - 60_000)

    @tool(restart="pure")
    async def sleep(minutes: int) -> str:
        """Let time pass."""
        clock.ahead_ms += hours * HOUR // n
        return "later"

    def work(q: Any) -> Any:
        return call("sleep", minutes=50) if q.turn == 0 else "Done."

    def lead(q: Any) -> Any:
        return call("hire", tasks=[f"part {q.turn}"]) if q.turn < n else "All are back."

    worker = scripted("worker", work, tools=[sleep])
    agents: list[Agent] = [
        scripted("lead", lead, tools=[hiring(worker)], staff=[worker], max_turns=n + 5),
        worker,
    ]

    async def run() -> str:
        async with Retinue(store, agents=agents, clock=clock) as retinue:
            run = await retinue.spawn(agents[0], "Watch the nightly imports")
            await retinue.wait(run)
            return str(run)

    return asyncio.run(run())


def _watched(browser: Browser, api: Served, run: str) -> Page:
    page = opened(browser, api)
    page.get_by_role("heading", level=1).first.wait_for()
    page.add_init_script(PROBE)
    page.goto(f"http://127.0.0.1:{api.port}/r/{run}")
    page.get_by_role("treeitem").first.wait_for()
    return page


def _update(page: Page) -> float:
    """How long an update took: of twenty paints, the second longest, and of a hundred steps that
    were heard."""
    tasks, paints = (sorted(page.evaluate(f"window.seen.{name}")) for name in ("tasks", "paints"))
    return float(tasks[int(len(tasks) * 0.99)] + paints[int(len(paints) * 0.95)])


def _heap(session: CDPSession) -> int:
    session.send("HeapProfiler.collectGarbage")
    return int(session.send("Runtime.getHeapUsage")["usedSize"])


def _settled(page: Page, text: str) -> None:
    page.locator(".run-head .pill", has_text=text).wait_for(timeout=300_000)
    page.wait_for_timeout(500)


class Figures(NamedTuple):
    """What one tree came to in the page."""

    first_row_ms: float
    update_ms: float
    rows_in_page: int
    n_agents: str
    last_row: str


def thousand(browser: Browser, folder: Path, n: int = 999) -> Figures:
    """A tree of `n` + 1 agents that are all at work, then all end."""
    crowd = Crowd(n)
    with served(store=folder / "wide.db", agents=crowd.agents) as api:
        run = _started(api)
        _until_open(api, run, n)
        page = _watched(browser, api, run)
        page.get_by_text(f"{n + 1:,} agents").wait_for()
        first = float(page.evaluate("window.seen.first"))
        page.evaluate("window.seen.tasks.length = window.seen.paints.length = 0")
        crowd.go.set()
        _settled(page, "Done")
        update = _update(page)
        rows = page.get_by_role("treeitem").count()
        total = page.locator(".trow.head span").first.inner_text()
        last = _last_row(page)
        page.context.close()
    return Figures(first, update, rows, total, last)


def _started(api: Served) -> str:
    return str(api.post("/runs", {"task": "Map it", "agent": "lead"}).json["run"])


def _until_open(api: Served, run: str, n: int) -> None:
    for _ in range(3_000):
        if len(api.get(f"/runs/{run}/tree").json["children"]) == n:
            return
    raise AssertionError(f"{n} agents were not started")


def _last_row(page: Page) -> str:
    """The name of the last row, after the tree is scrolled to its end, if its bar is drawn."""
    page.locator(".tree").evaluate("el => el.scrollTop = el.scrollHeight")
    page.wait_for_timeout(300)
    row = page.get_by_role("treeitem").last
    row.locator(".lane rect").first.wait_for(state="attached")
    return str(row.get_attribute("aria-label"))


def day_and_more(browser: Browser, folder: Path, run: str) -> dict[str, Any]:
    """A tree of 26 hours: its axis, and where its last bar is."""
    with served(store=folder / "long.db", agents=Crowd(1).agents) as api:
        page = _watched(browser, api, run)
        first = float(page.evaluate("window.seen.first"))
        last = _last_row(page)
        lane = page.get_by_role("treeitem").last.locator(".lane").bounding_box()
        bar = page.get_by_role("treeitem").last.locator(".lane rect").last.bounding_box()
        assert lane is not None and bar is not None
        axis = page.locator(".lane-axis text.axis").all_text_contents()
        page.context.close()
    end = (bar["x"] + bar["width"] - lane["x"]) / lane["width"]
    return {"first_row_ms": first, "last_row": last, "end_of_last_bar": end, "axis": axis}


def updates(browser: Browser, folder: Path, n: int = 25, n_calls: int = 135) -> dict[str, Any]:
    """The heap after a part of the updates and after all of them."""
    crowd = Crowd(n, n_calls)
    with served(store=folder / "busy.db", agents=crowd.agents) as api:
        run = _started(api)
        _until_open(api, run, n)
        page = _watched(browser, api, run)
        session = page.context.new_cdp_session(page)
        crowd.go.set()
        while int(page.evaluate("window.seen.steps")) < 2_000:
            page.wait_for_timeout(20)
        before = _heap(session)
        _settled(page, "Done")
        after, steps = _heap(session), int(page.evaluate("window.seen.steps"))
        worst = _update(page)
        page.context.close()
    return {"steps": steps, "heap_before": before, "heap_after": after, "update_ms": worst}


class Writer(Scripted):
    """Writes its reply in many pieces, from when `go` is set."""

    def __init__(self, n: int) -> None:
        super().__init__(["Written."])
        self.go, self._n = threading.Event(), n

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        await until(self.go.is_set)
        for i in range(self._n):
            emit(f"word {i} ")
            if i % 20 == 0:
                await asyncio.sleep(0.005)
        return await super().complete(request, lambda text: None)


def pieces(browser: Browser, folder: Path, n: int = 10_000) -> dict[str, Any]:
    """The heap before and after a reply that comes in many pieces."""
    writer = Writer(n)
    with served(store=folder / "text.db", agents=[Agent("lead", model=writer)]) as api:
        page = _watched(browser, api, _started(api))
        session = page.context.new_cdp_session(page)
        before = _heap(session)
        writer.go.set()
        _settled(page, "Done")
        after = _heap(session)
        n_heard = int(page.evaluate("window.seen.tasks.length"))
        page.context.close()
    return {"heard": n_heard, "heap_before": before, "heap_after": after}


def measured(folder: Path) -> Iterator[tuple[str, Any]]:
    run = long_tree(folder / "long.db")  # before playwright, which has a loop of its own
    with chromium(shutil.which("chromium") or "chromium") as browser:
        yield "thousand", thousand(browser, folder)._asdict()
        yield "day_and_more", day_and_more(browser, folder, run)
        yield "updates", updates(browser, folder)
        yield "pieces", pieces(browser, folder)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        figures = dict(measured(Path(folder)))
    print(json.dumps(figures, indent=1))  # noqa: T201
    wide, long, busy = figures["thousand"], figures["day_and_more"], figures["updates"]
    bytes_per_step, text = (
        (busy["heap_after"] - busy["heap_before"]) / busy["steps"],
        figures["pieces"],
    )
    bad = [
        name
        for name, is_bad in (
            ("first row", max(wide["first_row_ms"], long["first_row_ms"]) > LIMITS["first_row_ms"]),
            ("update", wide["update_ms"] > LIMITS["update_ms"]),
            ("rows", wide["rows_in_page"] > LIMITS["rows_in_page"]),
            ("bytes of a step", bytes_per_step > MOST_KEPT["step"]),
            ("heap", text["heap_after"] > text["heap_before"] + MOST_KEPT["text"]),
            ("steps", busy["steps"] < 10_000),
        )
        if is_bad
    ]
    print(json.dumps({"ok": not bad, "above": bad}))  # noqa: T201
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
