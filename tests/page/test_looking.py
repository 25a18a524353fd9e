"""How a person looks at runs in a browser: closer, further back, at what has failed, at what was
spent, and through a connection that is lost."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.host.served import Served
from tests.needs import needs
from tests.page.browser import MS, Gate, chromium, opened, serious, service
from tests.page.test_browser import faults, started

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


def seconds_shown(page: Page) -> list[float]:
    """The times on the axis of a short run."""
    texts = page.locator(".lane-axis > text.axis").all_text_contents()
    units = {"ms": 0.001, "s": 1.0}
    matches = [re.fullmatch(r"([\d.]+)(m?s)", text) for text in texts]
    return [float(one[1]) * units[one[2]] for one in matches if one]


def drag(page: Page, of: str, start: float, end: float) -> None:
    """Over a part of an element, in shares of its width."""
    box = page.locator(of).first.bounding_box()
    assert box is not None
    y = box["y"] + min(12, box["height"] / 2)
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=5)
    page.mouse.up()


def test_time_is_looked_at_closer_and_a_moment_is_a_link(
    browser: Browser, api: Served, gate: Gate
) -> None:
    run = started(api, "lead", "Look closer")
    time.sleep(0.5)  # a run of a few milliseconds has no part to look at
    gate.opened.set()
    api.post("/wait", {"runs": [run]})
    page = opened(browser, api, f"r/{run}")
    expect(page.locator(".lane rect").first).to_be_attached()
    fit = page.get_by_role("button", name="Fit")
    expect(fit).to_have_attribute("aria-pressed", "true")
    drag(page, ".lane-axis", 0.3, 0.6)
    expect(fit).to_have_attribute("aria-pressed", "false")
    brushed = seconds_shown(page)
    assert len(set(brushed)) == len(brushed) > 1 and brushed[0] > 0
    page.locator(".lane").first.hover()
    page.keyboard.down("Control")
    for _ in range(60):
        page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    expect(page.locator(".lane-axis > text.axis", has_text=re.compile("s$"))).not_to_have_count(0)
    page.wait_for_function(
        "before => document.querySelector('.lane-axis > text.axis').textContent !== before",
        arg=f"{brushed[0]}s",
    )
    close = seconds_shown(page)
    assert len(set(close)) == len(close) > 1, "each tick has a time of its own"
    assert close[-1] - close[0] <= 0.01
    page.keyboard.press("0")
    expect(fit).to_have_attribute("aria-pressed", "true")

    page.get_by_role("slider", name="Moment shown").press("PageDown")
    expect(page).to_have_url(re.compile(r"at=[\d.]+"))
    page.goto(page.url)
    expect(page.get_by_text("You are looking at")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile("at="))
    assert faults(page) == []


def test_the_detail_is_as_wide_as_it_was_left(browser: Browser, api: Served) -> None:
    run = started(api, "quick", "Count the places")
    page = opened(browser, api, f"r/{run}")
    divider = page.get_by_role("separator", name="Width of the detail")
    expect(divider).to_have_attribute("aria-valuenow", "480")
    drag(page, ".divider", 0.5, -30)
    wide = page.locator("#detail").evaluate("el => el.offsetWidth")
    assert wide > 600
    page.reload()
    expect(page.locator("#detail")).to_have_css("width", f"{wide}px")
    divider.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#detail")).to_have_css("width", f"{wide - 32}px")
    assert serious(page) == []
    divider.dblclick()
    expect(page.locator("#detail")).to_have_css("width", "480px")
    assert faults(page) == []


def test_a_failure_says_why_and_is_tried_again(browser: Browser, api: Served, gate: Gate) -> None:
    gate.opened.set()
    run = started(api, "unlucky", "Two of them")
    api.post("/wait", {"runs": [run]})
    page = opened(browser, api, f"r/{run}")
    page.get_by_role("treeitem", name=re.compile("^fail at once, worker, failed")).click()
    trouble = page.locator(".trouble")
    expect(trouble).to_contain_text("Cause")
    expect(trouble).to_contain_text("The table import_log does not exist")
    expect(trouble).to_contain_text("was spent")
    assert serious(page) == []
    page.get_by_role("button", name="Retry 1 failed").click()
    expect(page.locator(".notice")).to_contain_text("1 run goes on as new run")
    runs = api.get("/overview").json["runs"]
    assert len(runs) == 2 and runs[0]["resumes"] != ""
    assert faults(page) == []


def test_words_of_a_transcript_are_found_and_a_turn_is_a_link(
    browser: Browser, api: Served, gate: Gate
) -> None:
    gate.opened.set()
    run = started(api, "lead", "Find the words")
    api.post("/wait", {"runs": [run]})
    child = api.get(f"/runs/{run}/tree").json["children"][0]["id"]
    page = opened(browser, api)
    page.goto(f"http://127.0.0.1:{api.port}/r/{run}/{child}?turn=2")
    expect(page.locator('[data-turn="2"]')).to_be_in_viewport()
    expect(page.locator(".turn-mark").first).to_contain_text("$0.00")
    log = page.get_by_role("log")
    expect(log).not_to_contain_text("has 12 lines")
    page.get_by_label("Search the transcript").fill("12 LINES")
    expect(log).to_contain_text("has 12 lines")
    assert page.evaluate("[...CSS.highlights.get('hit')].map(String)") == ["12 lines"]
    assert serious(page) == []
    page.get_by_label("Search the transcript").fill("")
    page.wait_for_function("![...CSS.highlights.get('hit')].length")
    assert faults(page) == []


def test_costs_are_where_they_were_made(browser: Browser, api: Served, gate: Gate) -> None:
    gate.opened.set()
    run = started(api, "lead", "Spend it")
    started(api, "hostile", "Spend more")
    api.post("/wait", {"runs": [run]})
    page = opened(browser, api, "costs")
    agents = page.get_by_role("region", name="By agent").get_by_role("row")
    expect(agents.filter(has_text="worker")).to_contain_text(re.compile(r"worker2\$0\.00"))
    expect(agents.filter(has_text="lead")).to_contain_text(re.compile(r"lead1\$0\.00"))
    chart = page.get_by_role("img", name=re.compile(r"Spending by day of start: .*\$0\.00\d*"))
    expect(chart.locator("rect")).not_to_have_count(0)
    expect(page.locator(".page-head")).to_contain_text("2 runs")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export CSV").click()
    rows = Path(saved.value.path()).read_text().splitlines()
    assert len(rows) == 4 and '"worker","worker-model","2"' in "".join(rows)
    page.get_by_role("button", name="30 days").click()
    expect(page).to_have_url(re.compile("days=30"))
    assert serious(page) == []
    assert faults(page) == []


def test_a_diff_is_shown_side_by_side(browser: Browser, api: Served) -> None:
    started(api, "writer", "Write it down")
    page = opened(browser, api, "needs-you")
    expect(page.locator("tr.add").first).to_be_visible()
    page.get_by_role("button", name="Split").click()
    sides = page.locator("table.split tr", has=page.locator("td.del"))
    expect(sides).to_contain_text(["1old line1new line"])
    assert serious(page) == []
    page.reload()
    expect(page.locator("table.split")).to_be_visible()
    page.get_by_role("button", name="Unified").click()
    expect(page.locator("tr.add")).to_have_count(2)
    assert faults(page) == []


def test_a_host_that_is_gone_without_a_word_is_missed_and_found(
    browser: Browser, api: Served
) -> None:
    page = opened(browser, api)
    expect(page.locator(".link-state")).to_have_text("Live")
    page.route("**/api/v1/health", lambda route: route.abort())
    page.evaluate("Date.now = (now => () => now() + 11_000)(Date.now)")
    expect(page.locator(".link-state")).to_contain_text("Offline")
    page.unroute("**/api/v1/health")
    expect(page.locator(".link-state")).to_have_text("Live")
    assert [fault for fault in faults(page) if "Failed to load" not in fault] == []


def test_what_is_written_while_the_connection_is_lost_is_sent_once(
    browser: Browser, tmp_path: Path, gate: Gate
) -> None:
    with service(tmp_path, gate) as api:
        port, run = api.port, started(api, "lead", "Survive a restart")
        page = opened(browser, api, f"r/{run}")
        expect(page.get_by_role("treeitem")).to_have_count(3)
    expect(page.locator(".link-state")).to_contain_text("Offline")
    box = page.get_by_label(re.compile("^Message to"))
    box.fill("Be brief")
    box.press("Enter")
    expect(page.get_by_text("Will be sent when connected")).to_be_visible()
    page.get_by_role("button", name="Cancel run").click()
    expect(page.get_by_role("button", name="Stop 3")).to_be_disabled()
    page.keyboard.press("Escape")
    with service(tmp_path, gate, port):
        expect(page.locator(".receipt")).to_contain_text("Queued")
        expect(box).to_have_value("")
        gate.opened.set()
        expect(page.locator(".receipt")).to_contain_text("Read in turn 2")
        expect(page.locator(".mail")).to_have_count(1)
        assert [fault for fault in faults(page) if "Failed to load" not in fault] == []
