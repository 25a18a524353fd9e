"""Fan out and collect: one reader for each of the largest Python files of a folder (an argument, or DEMO=folder)."""

import asyncio
import os
import re
import sys
import tempfile
from pathlib import Path

from retinue import Agent, Caller, Lane, Orders, Outcome, Retinue, tool
from retinue.testing import Scripted, call

DEFAULT = Path(__file__).resolve().parent.parent / "src" / "retinue"
FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("DEMO") or DEFAULT)


@tool(restart="pure")
def read_file(path: str) -> str:
    """Read one file of the folder."""
    return (FOLDER / path).read_text(encoding="utf-8", errors="replace")


def read(request):
    task, text = request.messages[0].text, request.messages[-1].text
    if request.turn == 0:
        return call("read_file", path=task)
    doc, defs = re.search(r'"""\s*(.{0,60})', text), re.findall(r"^\s*(?:async )?def ", text, re.MULTILINE)
    return f"{task:<32}{len(text.splitlines()):>6}{len(defs):>7}  {doc[1] if doc else ''}"


reader = Agent("reader", "Report on one file.", model=Scripted(read, name="r", seconds=0.1), tools=[read_file])
