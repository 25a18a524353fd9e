"""The dashboard as a person uses it: in a browser, on real runs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.host.served import Served
from tests.needs import needs
from tests.page.browser import HOSTILE, MARKUP, MS, Gate, chromium, opened, serious, service

CHROMIUM = shutil.which("chromium") or "chromium"
pytestmark = needs("chromium")
expect.set_options(timeout=MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(CHROMIUM) as browser:
        yield browser


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def api(tmp_path: Path, gate: Gate) -> Iterator[Served]:
    (tmp_path / "notes.md").write_text("old line\n")
    with service(tmp_path, gate) as served:
        yield served
        gate.opened.set()


def faults(page: Page) -> list[str]:
    """What went wrong on a page, which is closed."""
    page.context.close()
    return list(page.faults)  # type: ignore[attr-defined]


def started(api: Served, agent: str, task: str, **terms: object) -> str:
    reply = api.post(
        "/runs", {"task": task, "agent": agent, "terms": {"questions": "ask", **terms}}
    )
    assert reply.status == 201, reply
    return str(reply.json["run"])


def test_a_run_is_started_watched_messaged_and_looked_back_at(
    browser: Browser, api: Served, gate: Gate
) -> None:
    page = opened(browser, api)
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    assert serious(page) == []
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Task").fill("Timeouts in every client")
    dialog.get_by_label("Agent").select_option("lead")
    dialog.get_by_label("Budget").fill("5.00")
    assert serious(page) == []
    dialog.get_by_role("button", name="Start").click()

    rows = page.get_by_role("treeitem")
    expect(rows).to_have_count(3)
    expect(page.locator(".lane rect").first).to_be_attached()
    worker = page.get_by_role("treeitem", name=re.compile("map the callers, worker, working"))
    worker.click()
    expect(page).to_have_url(re.compile(r"/r/[0-9a-f-]+/[0-9a-f-]+"))
    expect(page.get_by_role("log").get_by_text("hold")).to_be_visible()
    box = page.get_by_label(re.compile("^Message to"))
    box.fill("Keep the old argument")
    box.press("Enter")
    receipt = page.locator(".receipt")
    expect(receipt).to_contain_text("Queued")
    expect(receipt).to_contain_text("Read at its next turn")
    assert serious(page) == []
    gate.opened.set()
    expect(receipt).to_contain_text("Read in turn 2")
    expect(page.get_by_role("log")).to_contain_text("I was told: Keep the old argument")
    expect(
        page.get_by_role("treeitem", name=re.compile("Timeouts in every client, lead, done"))
    ).to_be_visible()

    slider = page.get_by_role("slider", name="Moment shown")
    slider.press("Home")
    expect(page.get_by_text("You are looking at")).to_be_visible()
    expect(rows).to_have_count(1)
    expect(page.get_by_label(re.compile("^Message to|^Go on with"))).to_have_count(0)
    page.get_by_role("button", name=re.compile("^Back to")).click()
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Cost flame").click()
    expect(page.locator(".flame text").first).to_contain_text("Timeouts in every client")
    page.get_by_role("button", name="Numbers").click()
    expect(page.locator(".columns").first).to_contain_text("cached")
    assert faults(page) == []


def test_a_permission_is_answered_with_its_diff_in_view(
    browser: Browser, api: Served, tmp_path: Path
) -> None:
    started(api, "writer", "Write it down")
    page = opened(browser, api)
    expect(page.get_by_role("heading", name=re.compile("1 needs you"))).to_be_visible()
    expect(page).to_have_title("(1) Runs · Retinue")
    assert serious(page) == []
    page.get_by_role("link", name="Review").click()
    expect(page.locator("tr.add")).to_have_count(2)
    expect(page.locator("tr.del")).to_contain_text("old line")
    expect(page.locator("tr mark")).to_have_text(["old", "new"])
    page.reload()
    expect(page.locator("tr.add").first).to_contain_text("new line")
    assert serious(page) == []
    allow = page.get_by_role("button", name="Allow once")
    expect(allow).to_be_enabled()
    expect(allow).not_to_be_focused()
    allow.click()
    expect(page.get_by_text("Allowed once by you")).to_be_visible()
    expect(page.locator(".count")).to_have_count(0)
    page.get_by_role("link", name="Runs", exact=True).first.click()
    expect(page.locator(".run-row.is-done")).to_contain_text("Written.")
    assert (tmp_path / "notes.md").read_text() == "new line\nand one more\n"
    assert faults(page) == []


def test_a_budget_is_raised_and_a_tree_is_stopped(browser: Browser, api: Served) -> None:
    run = started(api, "lead", "Two of them", budget={"usd": 2.0})
    page = opened(browser, api, f"r/{run}")
    expect(page.get_by_role("treeitem")).to_have_count(3)
    page.get_by_role("button", name="Raise").click()
    page.get_by_label("Dollars to add").fill("3")
    page.get_by_role("button", name="Raise by $3.00").click()
    expect(page.get_by_role("img", name=re.compile(r"Budget \$5\.00"))).to_be_visible()
    page.get_by_role("button", name="Cancel run").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Stop 3 agents?")
    assert serious(page) == []
    dialog.get_by_role("button", name="Stop 3").click()
    expect(dialog).to_contain_text(re.compile(r"All 3 stopped in [\d.]+ m?s"))
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_role("treeitem", name=re.compile("cancelled"))).to_have_count(3)
    assert faults(page) == []


def test_a_run_is_forked_with_its_price_before(browser: Browser, api: Served) -> None:
    run = started(api, "quick", "Count the places")
    page = opened(browser, api, f"r/{run}")
    expect(page.get_by_role("log")).to_contain_text("12 places in 7 files")
    page.get_by_role("button", name="Fork").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("What should it do instead").fill("Count them again")
    expect(dialog.locator(".price")).to_contain_text("tokens")
    dialog.get_by_role("button", name=re.compile("Fork for about")).click()
    expect(page).not_to_have_url(re.compile(run))
    expect(page.get_by_role("heading", level=1, name="Count them again")).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("Count the places")
    expect(page.get_by_role("option").first).to_contain_text("Count the places")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(run))
    assert faults(page) == []


def test_hostile_words_are_only_words(browser: Browser, api: Served) -> None:
    run = started(api, "hostile", HOSTILE, label=HOSTILE)
    asks = started(api, "asker", f"{HOSTILE}\n\n{MARKUP}", label=HOSTILE)
    api.post("/wait", {"runs": [run]})
    for width in (1440, 390):
        page = opened(browser, api, f"r/{run}", viewport={"width": width, "height": 844})
        name = page.get_by_role("treeitem").first
        expect(name).to_contain_text("<img src=x onerror=alert(1)>evilWWW")
        page.get_by_role("treeitem").first.click()
        log = page.get_by_role("log")
        expect(log).to_contain_text("<script>alert(2)</script>")
        log.get_by_role("button", name=re.compile("shout")).click()
        expect(log.get_by_role("button", name="Show all of it")).to_be_visible()
        tabs = [f"r/{run}/{run}?n={n}" for n in range(2)]
        for place in (*tabs, f"chat/{run}", "", "needs-you", "costs", f"r/{asks}"):
            page.goto(f"http://127.0.0.1:{api.port}/{place}")
            if place in tabs:
                page.get_by_role("tab", name=("Tools", "Raw")[tabs.index(place)]).click()
            expect(page.get_by_text("evilWWW").first).to_be_attached()
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{place} is {wide} px too wide at {width}"
            assert "\u202e" not in page.content() and "\x1b" not in page.content()
            assert page.locator("main img, main a[href^=javascript], main script").count() == 0
        assert faults(page) == []


def test_a_restart_of_the_server_loses_and_repeats_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    gate = Gate()
    with service(tmp_path, gate) as api:
        port, run = api.port, started(api, "lead", "Survive a restart")
        page = opened(browser, api, f"r/{run}")
        expect(page.get_by_role("treeitem")).to_have_count(3)
        gate_lost = Gate()
        gate_lost.opened.set()
    expect(page.locator(".link-state")).to_contain_text("Offline")
    with service(tmp_path, gate_lost, port):
        expect(page.locator(".link-state")).to_have_text("Live")
        expect(page.get_by_role("treeitem", name=re.compile("done"))).to_have_count(3)
        expect(page.get_by_role("log")).to_contain_text("Both are back.")
        expect(page.locator(".turn-mark")).to_have_count(2)
        expect(page.locator(".run-row, .trow.is-failed")).to_have_count(0)
        assert [fault for fault in faults(page) if "Failed to load" not in fault] == []
    gate.opened.set()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_every_page_can_be_read_by_all(
    browser: Browser, api: Served, gate: Gate, theme: str, width: int
) -> None:
    started(api, "quick", "Count the places")
    started(api, "writer", "Write it down")
    run = started(api, "lead", "Timeouts in every client", budget={"usd": 2.0})
    pages = ("", "needs-you", "agents", "models", "costs", "health", "settings", "deliveries")
    views = ("", f"/{run}", "?view=numbers", "?view=flame")
    places = (*pages, "chat", f"chat/{run}", *(f"r/{run}{view}" for view in views))
    size = {"width": width, "height": 844}
    page = opened(browser, api, viewport=size, color_scheme=theme)
    for place in places:
        page.goto(f"http://127.0.0.1:{api.port}/{place}")
        expect(page.locator("h1").first).to_be_attached()
        selectors = (
            ".table, .ways, a.run-row, .diff, .empty, .talk-col .by, .chat-list a, .trow, .flame"
        )
        expect(page.locator(selectors).first).to_be_attached()
        assert serious(page) == [], f"{place} {theme} {width}"
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{place or 'runs'} is {wide} px too wide at {width}"
    assert faults(page) == []
