"""The page in Debian's Chromium, over a served runtime with agents that follow a script and wait
where the test wants them to."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from retinue import Agent, tool
from retinue.core.values import ModelInfo
from retinue.host.identity import OWNER
from retinue.host.session_file import SessionFile
from retinue.testing import Scripted, call
from tests.api.scripted_agents import hiring
from tests.host.served import Served, served
from tests.waiting import until

AXE = Path(__file__).parent / "axe" / "axe.min.js.gz"
HOSTILE = "<img src=x onerror=alert(1)>\u202eevil\x1b[31m" + "W" * 300
MARKUP = (
    "[link](javascript:alert(3)) ![image](https://evil.example/x.png) <b onmouseover=alert(4)>b</b>"
    "\n\n<svg onload=alert(5)><script>alert(6)</script></svg>\n\n# `a**b` ~~~\n\n```\n</pre>\n```"
)
MS = 120_000


class Gate:
    """What a tool waits for until the test lets it through."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    async def __call__(self) -> None:
        await until(self.opened.is_set)


def scripted(name: str, script: Any, **fields: Any) -> Agent:
    info = ModelInfo(name=f"{name}-model", price_in=3_000, price_out=15_000)
    return Agent(name, model=Scripted(script, info=info), **fields)


def staff(gate: Gate) -> list[Agent]:
    """A lead with two workers that wait at the gate, one with a worker that fails, a writer that
    asks, one that answers, and one with hostile words."""

    @tool(restart="pure")
    async def hold(path: str) -> str:
        """Wait at the gate."""
        await gate()
        return f"{path} has 12 lines"

    def work(q: Any) -> Any:
        if q.messages[0].text.startswith("fail"):
            raise ValueError("The table import_log does not exist")
        if q.turn == 0:
            return call("hold", path="src/http.py")
        texts = [m.text for m in q.messages if getattr(m, "kind", "") == "mail"]
        return f"Done. I was told: {texts[-1] if texts else 'nothing'}"

    worker = scripted("worker", work, tools=[hold])
    lead = scripted(
        "lead",
        lambda q: (
            call("hire", tasks=["map the callers", "scan the plugins"])
            if q.turn == 0
            else "Both are back."
        ),
        tools=[hiring(worker)],
        staff=[worker],
    )
    unlucky = scripted(
        "unlucky",
        lambda q: call("hire", tasks=["fail at once", "scan"]) if q.turn == 0 else "One is back.",
        tools=[hiring(worker)],
        staff=[worker],
    )
    writer = scripted(
        "writer",
        lambda q: (
            call("edit", path="notes.md", old="old line", new="new line\nand one more")
            if q.turn == 0
            else "Written."
        ),
        tools=["edit", "read"],
    )
    quick = scripted("quick", ["## Report\n\n12 places in `7 files`"])

    @tool(restart="pure")
    async def shout(path: str) -> str:
        """One line of a megabyte."""
        return f"{HOSTILE} " + "M" * 1_000_000

    hostile = scripted(
        "hostile",
        lambda q: (
            [call("shout", path=HOSTILE), call(HOSTILE)]
            if q.turn == 0
            else f"{HOSTILE}\n\n<script>alert(2)</script>\n\n{MARKUP}"
        ),
        tools=[shout],
    )
    asker = scripted(
        "asker",
        lambda q: call("edit", path="notes.md", old="old", new=HOSTILE) if not q.turn else "Done.",
        tools=["edit", "read"],
    )
    return [lead, quick, writer, hostile, worker, asker, unlucky]


@contextlib.contextmanager
def service(folder: Path, gate: Gate, port: int = 0, **options: Any) -> Iterator[Served]:
    """The runtime over a store in `folder`, in which browsers stay signed in."""
    store, agents = folder / "page.db", staff(gate)
    with served(store=store, agents=agents, port=port, workspace=folder, **options) as api:
        api.guard.keyring.keep_sessions(SessionFile(str(folder / "sessions.json")))
        yield api


@contextlib.contextmanager
def chromium(program: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-lcd-text"]
        )
        try:
            yield browser
        finally:
            browser.close()


def opened(browser: Browser, api: Served, path: str = "", **options: Any) -> Page:
    """A signed-in page; what its console says and what it loads from elsewhere is a failure."""
    options.setdefault("viewport", {"width": 1440, "height": 900})
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(MS)
    page.faults = faults = list[str]()  # type: ignore[attr-defined]
    origin = f"http://127.0.0.1:{api.port}/"

    def on_dialog(dialog: Any) -> None:
        faults.append("a script ran")
        dialog.dismiss()

    page.on("pageerror", lambda error: faults.extend([str(error)]))
    page.on("console", lambda text: faults.extend([text.text] if text.type == "error" else []))
    page.on("request", lambda r: faults.extend([] if r.url.startswith(origin) else [r.url]))
    page.on("dialog", on_dialog)
    code = api.guard.keyring.new_code(OWNER)
    page.goto(f"{origin}{path}?code={code}")
    return page


def serious(page: Page) -> list[str]:
    """What axe finds serious or critical on the page as it is."""
    page.evaluate(gzip.decompress(AXE.read_bytes()).decode())
    violations = page.evaluate(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice']})"
        ".then(r => r.violations.filter(v => ['serious', 'critical'].includes(v.impact))"
        ".map(v => v.id + ': ' + v.nodes.map(n => n.target.join(' ')).slice(0, 3).join(', ')))"
    )
    return list(violations)
