"""`retinue artifact`: what was cut can be read by a person too, and by a pipe byte for byte."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from retinue.testing import call
from tests.cli.private_home import PrivateHome, private_home, whole
from tests.cli.test_run import FANOUT

REPORT = "0123456789é😀\x07 " * 600


def lead(request: Any) -> Any:
    """Hands ten tasks to sub-agents, then repeats what it was told; they report."""
    if "Delegate" not in request.messages[0].text:
        return call("submit_result", result=REPORT)
    messages = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
    return (
        whole(messages[-1].text)
        if messages
        else call("spawn_agents", tasks=[{"task": f"count {n}"} for n in range(10)])
    )


def test_what_was_cut_is_printed_whole_and_by_its_first_digits(tmp_path: Path) -> None:
    with private_home(tmp_path, lead) as home:
        answer = home.ok("run", *FANOUT, "Delegate it.")
        ids = set(re.findall(r"full text in artifact ([0-9a-f]{64})", answer))
        assert len(ids) == 1, "ten times the same text is kept once"
        (id,) = ids
        for word in (id, id[:12], id.upper(), f"artifact {id}"):
            result = home.run("artifact", word)
            assert (result.returncode, result.stdout) == (0, REPORT), (
                "as it is, without a line break behind it"
            )


def test_an_id_that_there_is_not_is_told_in_one_line(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda q: "Done.") as home:
        home.ok("run", "Nothing.")
        for id, word in (
            ("0" * 64, "not found in this store"),
            ("latest", "is not an artifact id"),
            ("../../etc", "is not an artifact id"),
        ):
            result = home.run("artifact", id)
            (line,) = result.stderr.splitlines()
            assert (result.returncode, result.stdout) == (2, "") and word in line
    assert (
        "there are no artifacts" in PrivateHome(tmp_path / "empty").run("artifact", "0" * 64).stderr
    )
