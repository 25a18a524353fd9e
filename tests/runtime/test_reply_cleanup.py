"""Whatever a model puts into a reply, the reply can be stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue import Agent, Retinue, tool
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call


@pytest.mark.parametrize("odd", ["\ud800x", "a\0b", "", "\u202e"], ids=repr)
@pytest.mark.parametrize("where", ["id", "name", "arguments_json", "text", "opaque", "model"])
@pytest.mark.parametrize("exact", [False, True])
def test_odd_characters_anywhere_in_a_reply_cost_no_run(
    tmp_path: Path, where: str, odd: str, exact: bool
) -> None:
    @tool(restart="pure")
    def look() -> str:
        """Look."""
        return "seen"

    class Odd(Scripted):
        async def complete(self, request: ModelRequest, emit: Any) -> Any:
            reply = await super().complete(request, emit)
            if not reply.message.calls:
                return reply
            if where == "model":
                return replace(reply, model=odd)
            if where in ("text", "opaque"):
                return replace(reply, message=replace(reply.message, **{where: odd}))
            calls = tuple(replace(c, **{where: odd}) for c in reply.message.calls)
            return replace(reply, message=replace(reply.message, calls=calls))

    async def main() -> str:
        model: Any = Odd([[call("look"), call("look")], "Done."], name="m")
        model.exact = exact
        async with Retinue(tmp_path / "r.db") as retinue:
            return (await retinue.run(Agent("a", model=model, tools=[look]), "Go.")).state

    assert asyncio.run(main()) == "completed"
