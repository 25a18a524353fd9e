"""`python -m docs.images.dashboard [FOLDER]` takes the pictures of the dashboard: each page, both
themes, wide and narrow, over real runs whose model follows a script; the guide shows some."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from docs.images.png import with_few_colours
from retinue import Agent, Limits, Origin, tool
from retinue.core.values import ModelInfo
from retinue.host.identity import OWNER
from retinue.testing import Scripted, call
from tests.api.scripted_agents import hiring
from tests.cli.private_home import PrivateHome
from tests.host.served import Served, served
from tests.page.browser import chromium

FOLDER = Path(__file__).parent
SIZES: dict[str, Any] = {
    "": {"width": 1440, "height": 900},
    "-phone": {"width": 390, "height": 844},
}
PAGES = "runs run needs-you chat agents models costs deliveries health settings"
SHOWN = (*PAGES.split(), "run-dark", "needs-you-dark", "runs-phone", "chat-phone", "run-phone-dark")
"""The pictures that the guide shows; another folder gets all of them."""
FILES = {
    "reviewer": ("Reads a change and says what is wrong with it.", "Read the change.\n"),
    "explorer": ("Finds places in the code and lists them.", "List the places.\n"),
    "silent": ("Says nothing yet.", ""),
}
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

    worker = _scripted("coder", work, 0.5, max_turns=60, tools=[query, "edit", "read"])
    quick = _scripted("writer", ["## Names\n\n- `on_import`\n- `after_batch`\n\nBoth are free."])
    return [_scripted("lead", lead, tools=[hiring(worker)], staff=[worker]), quick, worker]


def _start(api: Served, agent: str, task: str, **terms: Any) -> str:
    body = {"task": task, "agent": agent, "terms": {"questions": "ask", **terms}}
    return str(api.post("/runs", body).json["run"])


def _take(page: Page, places: dict[str, str], origin: str, end: str, folder: Path) -> None:
    for name, place in places.items():
        if folder == FOLDER and f"{name}{end}" not in SHOWN:
            continue
        page.goto(f"{origin}/{place}")
        page.locator("h1, h2").first.wait_for()
        page.wait_for_timeout(1_500)
        picture = with_few_colours(page.screenshot())
        (folder / f"dashboard-{name}{end}.png").write_bytes(picture)


def _every(browser: Browser, address: str, places: dict[str, str], folder: Path) -> None:
    """The places in both themes, wide and narrow. `address` lets one browser in."""
    origin = "/".join(address.split("/")[:3])
    context = browser.new_context(viewport=SIZES[""])
    context.new_page().goto(address)
    cookies = context.storage_state()
    for end, size in SIZES.items():
        for theme in ("light", "dark"):
            looks: Any = {"viewport": size, "color_scheme": theme, "storage_state": cookies}
            other = browser.new_context(**looks)
            dark = "-dark" if theme == "dark" else ""
            _take(other.new_page(), places, origin, f"{end}{dark}", folder)
            other.close()
    context.close()


class Nobody:
    """A channel to which nothing gets through."""

    async def send(self, delivery: Any) -> None:
        raise ConnectionError("nobody listens on hooks.internal")


def _runs(browser: Browser, work: Path, folder: Path) -> None:
    (work / "client.py").write_text("class Client:\n    timeout = None\n    retries = 2\n")
    options: dict[str, Any] = {
        "channels": {"hooks": Nobody()},
        "limits_of_runs": Limits(delivery_tries=1),
    }
    agents = _staff()
    with served(store=work / "page.db", agents=agents, workspace=work, **options) as api:
        origin = Origin(channel="hooks", user="mira")
        task = "Names for the new plugin hook"
        started = api.retinue.run(agents[1], task, origin=origin, announce=True)
        asyncio.run_coroutine_threadsafe(started, api.loop).result(60)
        _start(api, "writer", "Explain the ledger to a newcomer")
        run = _start(api, "lead", "Why do nightly imports get slower?", budget={"usd": 2.0})
        time.sleep(6)
        child = api.get(f"/runs/{run}/tree").json["children"][0]["id"]
        places = {
            "runs": "",
            "run": f"r/{run}/{child}",
            "chat": f"chat/{run}",
            **{name: name for name in ("needs-you", "costs", "deliveries", "settings")},
        }
        code = api.guard.keyring.new_code(OWNER)
        _every(browser, f"http://127.0.0.1:{api.port}/?code={code}", places, folder)
        api.post("/cancel", {"runs": [run]})


def _project(browser: Browser, work: Path, folder: Path) -> None:
    """The pages that tell of a project: its agent files, keys and store."""
    home = PrivateHome(work, RETINUE_IDLE_SECONDS="20", ANTHROPIC_API_KEY="not-a-key")
    files = home.project / ".claude" / "agents"
    files.mkdir(parents=True)
    for name, (description, text) in FILES.items():
        head = f"---\nname: {name}\ndescription: {description}\n---\n"
        (files / f"{name}.md").write_text(head + text)
    try:
        address = home.run("dashboard", "--no-open").stdout.strip()
        places = {name: name for name in ("agents", "models", "health")}
        _every(browser, address, places, folder)
    finally:
        home.run("host", "stop")


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="shop-") as work:
        for name in ("runs", "project"):
            (Path(work) / name).mkdir()
        with chromium(shutil.which("chromium") or "chromium") as browser:
            _project(browser, Path(work) / "project", folder)
            _runs(browser, Path(work) / "runs", folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else FOLDER)
