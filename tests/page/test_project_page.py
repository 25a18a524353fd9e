"""The dashboard of a project: its agent files, with what is wrong with them, and prices."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from playwright.sync_api import expect

from tests.cli.private_home import PrivateHome
from tests.needs import needs
from tests.page.browser import MS, chromium, serious

CHROMIUM = shutil.which("chromium") or "chromium"
pytestmark = needs("chromium")
GOOD = "---\nname: reviewer\ndescription: Reads a change and says what is wrong.\n---\nRead it.\n"
BAD = "---\nname: broken\ndescription: [\n---\nNothing.\n"
EMPTY = "---\nname: silent\ndescription: Says nothing.\nmodel: sonnet\n---\n"


def test_agents_are_shown_with_their_files_and_faults_and_models_with_prices(
    tmp_path: Path,
) -> None:
    home = PrivateHome(tmp_path, RETINUE_IDLE_SECONDS="20")
    folder = home.project / ".claude" / "agents"
    folder.mkdir(parents=True)
    for name, text in (("reviewer", GOOD), ("broken", BAD), ("silent", EMPTY)):
        (folder / f"{name}.md").write_text(text)
    try:
        address = home.run("dashboard", "--no-open").stdout.strip()
        with chromium(CHROMIUM) as browser:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.set_default_timeout(MS)
            page.goto(address)
            page.get_by_role("link", name="Agents", exact=True).first.click()
            row = page.get_by_role("row", name=re.compile("^reviewer"))
            expect(row).to_contain_text("Reads a change and says what is wrong.")
            expect(row).to_contain_text("claude")
            faults = page.get_by_role("region", name="Faults of files")
            expect(faults).to_contain_text("broken.md")
            expect(faults.locator(".badge.bad").first).to_have_text("error")
            expect(faults).to_contain_text("silent has no instructions")
            expect(page.get_by_role("row", name=re.compile("^silent"))).to_contain_text("1 fault")
            assert serious(page) == []
            page.get_by_role("link", name="Models", exact=True).first.click()
            expect(page.get_by_role("row", name=re.compile("^anthropic"))).to_contain_text(
                re.compile(r"claude-\S+\$\d+\.\d\d\$\d+\.\d+\$\d+\.\d\d")
            )
            page.get_by_role("link", name="Health", exact=True).first.click()
            expect(page.get_by_role("row", name=re.compile("^Store"))).to_contain_text(".db")
    finally:
        home.run("host", "stop")
