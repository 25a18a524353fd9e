"""`python -m docs.images.dashboard [FOLDER]` takes the pictures of the dashboard: each page, both
themes, wide and narrow, over real runs whose model follows a script."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from retinue import Agent, tool
from retinue.core.values import ModelInfo
from retinue.host.identity import OWNER
from retinue.testing import Scripted, call
from tests.api.scripted_agents import hiring
from tests.host.served import Served, served
from tests.page.browser import chromium

FOLDER = Path(__file__).parent
SIZES = ((1440, 900), (390, 844))
PAGES = ("needs-you", "agents", "models", "costs", "deliveries", "health", "settings")
TASKS = ("async-client", "sync-client", "import-timings", "query-plans", "bench-batch-size")
INFO = {"price_in": 3_000, "price_out": 15_000, "price_cache_read": 300, "window": 200_000}


def _scripted(name: str, script: Any, delay: float = 0.4, **fields: Any) -> Agent:
    model = Scripted(script, info=ModelInfo(name=f"claude-{name}", **INFO), delay=delay)
    return Agent(name, model=model, **fields)


def _staff() -> list[Agent]:
    @tool(restart="pure")
    async def query(statement: str) -> str:
        """Ask the database."""
        return "\n".join(f"batch {n}: {800 + n * 11} ms" for n in range(40))

    def work(request: Any) -> Any:
        task = next(m.text for m in request.messages if getattr(m, "text", ""))
        if "sync-client: " in task and task[0] != "a":
            return call("edit", path="client.py", old="timeout = None", new="timeout = 30.0")
        if "import-timings" in task and request.turn == 1:
            raise ValueError("The table import_log does not exist")
        if request.turn < 2:
            statement = "explain analyze select * from stage_orders"
            return call("query", statement=statement)
        if "query-plans" in task or "bench" in task:
            return call("query", statement=f"select {request.turn} from pg_stat_statements")
        return "p95 doubled on **3 November**: `BATCH_ROWS` went from 5,000 to 500."

    def lead(request: Any) -> Any:
        if request.turn == 0:
            tasks = [f"{name}: look for the cause" for name in TASKS]
            return call("hire", tasks=tasks)
        return "The batch size did it."

    worker = _scripted("coder", work, 0.5, tools=[query, "edit", "read"], max_turns=60)
    quick = _scripted("writer", ["## Names\n\n- `on_import`\n- `after_batch`\n\nBoth are free."])
    return [_scripted("lead", lead, tools=[hiring(worker)], staff=[worker]), quick, worker]


def _start(api: Served, agent: str, task: str, **terms: Any) -> str:
    body = {"task": task, "agent": agent, "terms": {"questions": "ask", **terms}}
    return str(api.post("/runs", body).json["run"])


def _take(browser: Browser, api: Served, places: dict[str, str], folder: Path) -> None:
    for theme in ("light", "dark"):
        for width, height in SIZES:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=theme,  # type: ignore[arg-type]
            )
            page: Page = context.new_page()
            origin = f"http://127.0.0.1:{api.port}/"
            page.goto(f"{origin}?code={api.guard.keyring.new_code(OWNER)}")
            for name, place in places.items():
                page.goto(origin + place)
                page.locator("h1, h2").first.wait_for()
                page.wait_for_timeout(1_200)
                page.screenshot(path=folder / f"dashboard-{name}-{width}-{theme}.png")
            context.close()


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        code = "class Client:\n    timeout = None\n    retries = 2\n"
        (Path(work) / "client.py").write_text(code)
        with served(store=Path(work) / "page.db", agents=_staff(), workspace=Path(work)) as api:
            _start(api, "writer", "Names for the new plugin hook")
            _start(api, "writer", "Explain the ledger to a newcomer")
            run = _start(api, "lead", "Why do nightly imports get slower?", budget={"usd": 2.0})
            time.sleep(6)
            child = api.get(f"/runs/{run}/tree").json["children"][3]["id"]
            places = {name: name for name in PAGES}
            places |= {"runs": "", "run": f"r/{run}/{child}", "chat": f"chat/{run}"}
            with chromium(shutil.which("chromium") or "chromium") as browser:
                _take(browser, api, places, folder)
            api.post("/cancel", {"runs": [run]})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
