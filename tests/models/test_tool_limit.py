"""A provider that takes so many tools at most is told of so many: chosen the same way every time,
and said."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from retinue.core.values import ToolSchema
from retinue.models.fallback import Fallback
from retinue.models.tool_limit import fitting, left_out
from tests.models.http_world import DIALECTS, READ, asking, complete, talking


def tools(server: str, n: int) -> list[ToolSchema]:
    return [
        ToolSchema(name=f"mcp__{server}__t{i:03}", description="", parameters={"type": "object"})
        for i in range(n)
    ]


def test_own_tools_stay_and_servers_share_what_is_left() -> None:
    own = [
        ToolSchema(name=f"own{i}", description="", parameters={"type": "object"}) for i in range(3)
    ]
    all_of = (*tools("big", 200), *own, *tools("small", 5))
    rest = fitting(all_of, 128)
    assert rest == fitting(all_of, 128) and len(rest) == 128
    assert [t for t in all_of if t in rest] == list(rest), "in their order"
    names = {t.name for t in rest}
    assert {t.name for t in own} <= names and {t.name for t in tools("small", 5)} <= names
    assert fitting(all_of, 0) is all_of and fitting(tuple(own), 128) == tuple(own)
    omitted_names = left_out(all_of, rest, 128)
    assert (
        "80 tools" in omitted_names
        and "big" in omitted_names
        and "small" not in omitted_names
        and "128" in omitted_names
    )
    assert "includeTools" in omitted_names and left_out(rest, rest, 128) == ""


def test_a_crowd_of_own_tools_is_cut_at_its_end() -> None:
    own = tuple(
        ToolSchema(name=f"own{i}", description="", parameters={"type": "object"})
        for i in range(130)
    )
    assert fitting(own, 128) == own[:128]
    assert "2 tools" in left_out(own, own[:128], 128)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_provider_is_told_of_more_tools_than_it_takes(
    dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    declared = (READ, *tools("s", 140))

    async def main() -> tuple[int, str]:
        async with talking(dialect=dialect) as (llm, model):
            request = asking(tools=declared, declared=declared)
            await complete(model, request)
            await complete(model, request)
            return len(llm.requests[-1].tools), json.dumps(llm.requests[-1].system)

    with caplog.at_level(logging.WARNING, "retinue"):
        n_tools, instructions = asyncio.run(main())
    if dialect.startswith("openai"):
        assert n_tools == 128
        assert "13 tools" in instructions
        assert caplog.text.count("13 tools") == 1, "said once"
    else:
        assert n_tools == 141 and "13 tools" not in instructions and not caplog.text


def test_a_chain_takes_as_many_tools_as_its_narrowest_link() -> None:
    async def main() -> None:
        async with (
            talking(dialect="anthropic") as (_, wide),
            talking(dialect="openai_chat") as (_, narrow),
        ):
            assert (wide.most_tools, narrow.most_tools) == (0, 128)
            assert Fallback([wide, narrow], name="c").most_tools == 128
            assert Fallback([wide], name="c").most_tools == 0

    asyncio.run(main())
