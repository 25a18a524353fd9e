"""A caller with a directory of its own, for the tests of the file tools."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import Queued, Run
from retinue.core.values import Permissions
from retinue.tools.base import Context, ToolResult
from retinue.tools.builtin.builtin_tool import Builtin
from retinue.tools.builtin.edit import EditTool
from retinue.tools.builtin.list_find_tools import FindTool, ListFilesTool
from retinue.tools.builtin.read_tool import ReadTool
from retinue.tools.builtin.search import SearchTool
from retinue.tools.builtin.symbols import SymbolsTool
from retinue.tools.builtin.write_tool import WriteTool

TOOLS: dict[str, Builtin[Any]] = {
    t.name: t
    for t in (
        ReadTool(), ListFilesTool(), FindTool(), SearchTool(), SymbolsTool(),
        EditTool(), WriteTool(),
    )
}  # fmt: skip


def a_caller(root: Path | str, **fields: Any) -> Context:
    permissions = Permissions(read=fields.pop("read", None), write=fields.pop("write", None))
    fields["rules_above"] = ((str(root), rules),) if (rules := fields.pop("rules", ())) else ()
    spec = RunSpec(id="r", request=RunRequest(agent="boss", task="t"), root="r")
    run = Run(id="r", state=Queued(), turn=2)
    return Context(
        spec=spec,
        row=run,
        call_id="c",
        index=1,
        key="k",
        called_at=5,
        root=str(root),
        permissions=permissions,
        **fields,
    )


class Desk:
    """Calls tools in one directory: `ok` and `no` are the text of an answer that must not, or must,
    be an error."""

    def __init__(self, root: Path, **fields: Any) -> None:
        self.root = root
        self.fields = fields

    def call(self, name: str, **args: Any) -> ToolResult:
        answer = asyncio.run(TOOLS[name].run(a_caller(self.root, **self.fields), args))
        assert isinstance(answer, ToolResult)
        answer.text.encode()
        return answer

    def ok(self, name: str, **args: Any) -> str:
        answer = self.call(name, **args)
        assert not answer.error, answer.text
        return answer.text

    def no(self, name: str, **args: Any) -> str:
        answer = self.call(name, **args)
        assert answer.error, answer.text
        return answer.text

    def again(self) -> Desk:
        return Desk(self.root, **{**self.fields, "again": True})


def tree(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root
