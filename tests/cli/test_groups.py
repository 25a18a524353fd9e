"""Groups of background work from a terminal: seen in `ps`, ended by their id, and heard of when the
run goes on."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

from retinue.testing import call
from tests.cli.private_home import SECONDS, private_home


class Background:
    """A lead that starts two tasks in the background and ends; the tasks end when the test lets
    them."""

    def __init__(self) -> None:
        self.let, self.heard = threading.Event(), list[str]()

    def __call__(self, request: Any) -> Any:
        first = request.messages[0].text
        if first.startswith("part"):
            self.let.wait(SECONDS)
            return f"result of {first}"
        self.heard = [m.text for m in request.messages]
        if request.turn == 0:
            tasks = [{"task_id": x, "prompt": f"part {x}", "tools": []} for x in "ab"]
            return call("delegate_tasks", mode="background", tasks=tasks)
        return next(text for text in reversed(self.heard) if text)


def test_the_id_of_a_group_is_in_ps_and_ends_it(tmp_path: Path) -> None:
    script = Background()
    with private_home(tmp_path, script) as home:
        try:
            (group,) = re.findall(r"bg-[0-9a-f]{6}", home.ok("run", "Go."))
            lines = home.until(lambda: [r for r in home.runs() if r["parent"]])
            assert [(r["label"], r["group"]) for r in lines] == [("a", group), ("b", group)]
            listed = home.ok("ps", "--tree").splitlines()
            assert f"{group}: 2 in the background. End them: retinue cancel {group}" in listed
            ended = home.run("cancel", group)
            assert ended.returncode == 0 and ended.stderr.count("cancelled") == 2
            assert [r["state"] for r in home.runs() if r["parent"]] == ["cancelled"] * 2
        finally:
            script.let.set()


def test_what_ended_in_the_background_is_heard_of_when_the_run_goes_on(tmp_path: Path) -> None:
    script = Background()
    with private_home(tmp_path, script) as home:
        home.ok("run", "Go.")
        script.let.set()
        home.until(lambda: [r["state"] for r in home.runs() if r["parent"]] == ["completed"] * 2)
        home.ok("run", "-c", "What came of it?")
        text = "\n".join(script.heard)
        assert (
            "### a (completed)\nresult of part a" in text
            and "### b (completed)\nresult of part b" in text
        )
