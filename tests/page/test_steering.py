"""What a person does to several runs, to a conversation, a fork and a delivery, in a browser."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from retinue import Limits, Origin
from tests.host.served import Served
from tests.needs import needs
from tests.page.browser import MS, Gate, chromium, opened, scripted, serious, service
from tests.page.test_browser import faults, started
from tests.waiting import SECONDS

CHROMIUM = shutil.which("chromium") or "chromium"
pytestmark = needs("chromium")
expect.set_options(timeout=MS)


class Post:
    """A channel that fails until it is told to work."""

    def __init__(self) -> None:
        self.works, self.took = False, list[str]()

    async def send(self, delivery: Any) -> None:
        if not self.works:
            raise ConnectionError("nobody at home")
        self.took.append(delivery.text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(CHROMIUM) as browser:
        yield browser


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def api(tmp_path: Path, gate: Gate, post: Post) -> Iterator[Served]:
    (tmp_path / "notes.md").write_text("old line\n")
    limits = Limits(delivery_tries=1)
    with service(tmp_path, gate, channels={"post": post}, limits_of_runs=limits) as served:
        yield served
        gate.opened.set()


def test_a_conversation_shows_who_works_beside_it_and_goes_on(
    browser: Browser, api: Served, gate: Gate
) -> None:
    page = opened(browser, api, "chat")
    expect(page.get_by_role("heading", name="No conversations yet")).to_be_visible()
    assert serious(page) == []
    page.get_by_role("button", name="New conversation").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Task").fill("Timeouts in every client")
    dialog.get_by_label("Agent").select_option("lead")
    dialog.get_by_role("button", name="Start").click()
    expect(page).to_have_url(re.compile(r"/chat/[0-9a-f-]+$"))
    log = page.get_by_role("log", name="Messages")
    expect(log).to_contain_text("2 sub-agents started map the callers, scan the plugins")
    expect(log).to_contain_text("0 of 2 done")
    staff = page.get_by_label("Sub-agents at work")
    expect(staff.locator(".srow")).to_have_count(2)
    expect(staff.locator(".peek")).to_contain_text("hold")
    box = page.get_by_label("Message to lead")
    box.fill("@map Keep the old argument")
    box.press("Enter")
    expect(box).to_have_value("")
    box.fill("Be brief")
    box.press("Enter")
    expect(log.locator(".msg-you")).to_have_count(2)
    expect(log.locator(".receipt").last).to_contain_text("Queued")
    assert serious(page) == []
    gate.opened.set()
    expect(log).to_contain_text("Both are back.")
    expect(log).to_contain_text("rests on 2 sub-agents")
    expect(log.locator(".from-child")).to_have_count(2)
    expect(staff).to_contain_text("I was told: Keep the old argument")
    before = page.url
    box = page.get_by_label("Go on with lead")
    box.fill("And now the rest")
    box.press("Enter")
    expect(page).not_to_have_url(before)
    expect(log.locator(".msg-you").last).to_contain_text("And now the rest")
    expect(log).to_contain_text("Timeouts in every client")
    expect(page.locator(".chat-list a")).to_have_count(1)
    assert faults(page) == []


def test_several_agents_are_told_and_stopped_together(browser: Browser, api: Served) -> None:
    run = started(api, "lead", "Two of them")
    page = opened(browser, api, f"r/{run}")
    rows = page.get_by_role("treeitem")
    expect(rows).to_have_count(3)
    for n in (1, 2):
        rows.nth(n).click(modifiers=["Shift"])
    bar = page.get_by_role("group", name="Chosen")
    expect(bar).to_contain_text("2 chosen")
    assert serious(page) == []
    bar.get_by_label("Message to 2 chosen").fill("Hurry")
    bar.get_by_role("button", name="Queue").click()
    expect(page.locator(".notice")).to_contain_text(["Queued for 2 agents"])
    bar.get_by_role("button", name="Stop 2").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Stop 2 agents?")
    dialog.get_by_role("button", name="Stop 2").click()
    expect(dialog).to_contain_text(re.compile(r"All 2 stopped in"))
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_role("treeitem", name=re.compile("cancelled"))).to_have_count(2)
    bar.get_by_role("button", name="Clear").click()
    expect(bar).to_have_count(0)
    assert faults(page) == []


def test_several_runs_are_stopped_from_the_list(browser: Browser, api: Served) -> None:
    for n in range(2):
        started(api, "lead", f"Number {n}")
    page = opened(browser, api)
    rows = page.locator("a.run-row")
    expect(rows).to_have_count(2)
    for n in range(2):
        rows.nth(n).click(modifiers=["Shift"])
    page.get_by_role("button", name="Stop 2").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Stop 6").click()
    expect(dialog).to_contain_text("All 6 stopped in")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("a.run-row.is-cancelled")).to_have_count(2)
    assert faults(page) == []


def test_a_fork_begins_at_a_turn_and_says_what_came_from_the_cache(
    browser: Browser, api: Served, gate: Gate
) -> None:
    gate.opened.set()
    run = started(api, "lead", "Count the places")
    api.post("/wait", {"runs": [run]})
    page = opened(browser, api, f"r/{run}/{run}")
    page.get_by_role("button", name="Fork before turn 2").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("shares the conversation before turn 2")
    dialog.get_by_label("What should it do instead").fill("Count them again")
    expect(dialog.locator(".price")).to_contain_text("tokens")
    dialog.get_by_role("button", name=re.compile("^Fork for about")).click()
    expect(page.get_by_role("heading", level=1, name="Count them again")).to_be_visible()
    expect(page.locator(".facts")).to_contain_text(re.compile(r"First prompt [\d.k]+ of [\d.k]+"))
    expect(page.locator(".facts")).to_contain_text("expected")
    page.get_by_role("tab", name="Result").click()
    assert faults(page) == []


def test_who_answered_elsewhere_is_said(browser: Browser, api: Served) -> None:
    run = started(api, "writer", "Write it down")
    page = opened(browser, api, "needs-you")
    expect(page.locator("tr.add").first).to_be_visible()
    assert api.post(f"/runs/{run}/answer", {"allow": True, "by": "mira in Slack"}).status == 200
    expect(page.locator(".answer")).to_contain_text(re.compile(r"Allowed by mira in Slack, \d"))
    expect(page.get_by_role("button", name="Allow once")).to_have_count(0)
    assert faults(page) == []


def test_a_delivery_that_did_not_arrive_is_sent_again(
    browser: Browser, api: Served, post: Post
) -> None:
    ada = Origin(channel="post", user="ada")
    courier = scripted("courier", ["It is done."])
    work = api.retinue.run(courier, "Announce it", origin=ada, announce=True)
    asyncio.run_coroutine_threadsafe(work, api.loop).result(SECONDS)
    page = opened(browser, api, "deliveries")
    for _ in range(100):
        if page.get_by_text("nobody at home").count():
            break
        page.wait_for_timeout(100)
        page.reload()
    expect(page.locator("tr", has_text="nobody at home")).to_contain_text("dead")
    post.works = True
    page.get_by_role("button", name="Send again").click()
    expect(page.get_by_role("button", name="Send again")).to_have_count(0)
    assert faults(page) == []
    assert post.took == ["It is done."]
