"""Arguments as no sane model would write them: each gets an answer, nothing is raised and nothing
leaves the root."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

from retinue.core.messages import ToolCall
from retinue.tools.base import ToolResult
from retinue.tools.toolbox import Toolbox
from tests.tools.builtin.file_tool_support import TOOLS, a_caller, tree
from tests.tools.builtin.test_read_list_find import ATTACKS

N_CALLS = 5_000
TEXTS = [
    "", " ", "a", "a.py", "src", "src/b.py", ".", "./", "nul\0", "\ud800", "\udfff\ud800",
    "\u202e", "\ufeff", "\u00e9", "x" * 300, "y" * 70_000, "\n", "\r\n", "*", "**", "[", "[^", "(",
    "(?", "\\", "{", "{,}", "^$", "(a+)+$", "[[:alpha:]]", "a{999999}", "(?i)A", "\\p{Greek}",
    "\\xff", "-e", "--files", "--pre=sh", "@@", "*** Begin Patch",
    "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch",
    "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+y\n",
    "*** Begin Patch\n*** Add File: ../../owned\n+x\n*** End Patch",
    "--- a/x\n+++ b/../../owned\n@@ -0,0 +1 @@\n+x\n", "--- \n+++ \n@@ -1 +1 @@\n-a\n+b\n",
    "*** Begin Patch\n*** Delete File: \n*** End Patch", "lines", "files", "count", "fifo", "loop",
    "out", "binary", "deep/er/est", ".git/hooks/x", ".bashrc", "0" * 64, "def" * 20, "null",
    "true",
]  # fmt: skip
OTHERS = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63,
    2**70,
    -(2**70),
    1.5,
    float("inf"),
    float("nan"),
    [],
    {},
    [[]],
    ["a"],
]


def anything(chance: random.Random) -> Any:
    kind = chance.random()
    if kind < 0.45:
        return chance.choice(TEXTS)
    if kind < 0.6:
        return chance.choice(ATTACKS)
    if kind < 0.7:
        return "".join(
            chr(chance.choice([chance.randrange(128), chance.randrange(0x3000)])) for _ in range(9)
        )
    if kind < 0.75:
        return chance.choice(TEXTS) + "/" + chance.choice(TEXTS)
    if kind < 0.78:
        value: Any = "deep"
        for _ in range(chance.randint(1, 300)):
            value = [value] if chance.random() < 0.5 else {"a": value}
        return value
    return chance.choice(OTHERS)


def arguments(chance: random.Random, fields: list[str]) -> dict[str, Any]:
    sane = {
        "path": "a.py",
        "pattern": "x",
        "old": "x",
        "new": "y",
        "content": "x",
        "limit": 5,
        "mode": "lines",
    }
    args: dict[str, Any] = {}
    for name in fields:
        roll = chance.random()
        if roll < 0.45:
            args[name] = anything(chance)
        elif roll < 0.75 and name in sane:
            args[name] = sane[name]
    if chance.random() < 0.05:
        args[chance.choice(["extra", "file_path", "", "__class__", "\ud800"])] = anything(chance)
    return args


def test_every_call_is_answered(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "root",
        {"a.py": "x\n", "src/b.py": "def x():\n", "binary": b"\0\1", ".git/config": "x\n"},
    )
    os.mkfifo(root / "fifo")
    (root / "loop").symlink_to("loop")
    (root / "out").symlink_to("..")
    chance = random.Random(11)
    box = Toolbox()
    box.add("boss", TOOLS.values())

    async def calls() -> None:
        for i in range(N_CALLS):
            # A search starts a process; the other tools get the greater share.
            name = chance.choice(
                ["read", "list", "find", "edit", "write"] if i % 12 else ["search"]
            )
            tool = TOOLS[name]
            args = arguments(chance, list(tool.schema.parameters["properties"]))
            call = ToolCall(id="c", name=name, arguments_json=json.dumps(args))
            answer = await box.run("boss", a_caller(root, again=chance.random() < 0.2), call)
            assert isinstance(answer, ToolResult), (name, args)
            answer.text.encode()
            assert "\0" not in answer.text
            assert len(answer.text) < 65_536
            summary = tool.summary(args)
            assert "\n" not in summary
            assert len(summary) <= 250

    asyncio.run(calls())
    assert sorted(os.listdir(tmp_path)) == ["root"]
    assert (root / ".git" / "config").read_text() == "x\n"
    assert sorted(os.listdir(root / ".git")) == ["config"]
    assert not (root / ".bashrc").exists()
