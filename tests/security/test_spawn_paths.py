"""Every way to start a run, found in the source: a new one fails here until it passes the
policy."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from retinue import Agent, Permissions, Retinue, tool
from retinue.core import machine
from retinue.testing import Scripted

SOURCE = Path(machine.__file__).parents[1]
MAKES_A_SPEC = {("core/machine.py", "_request"), ("core/spawn.py", "_child_spec")}
MAKES_A_RUN = {("core/machine.py", "_request"), ("core/spawn.py", "start_children")}
REGISTERS_A_RUN = {("core/spawn.py", "create_run"), ("runtime/recover.py", "rebuild")}
REQUESTS = {("starts.py", "_start"), ("starts.py", "fork"), ("starts.py", "resume")}


@cache
def everything() -> dict[str, set[tuple[str, str]]]:
    results: dict[str, set[tuple[str, str]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if path.parts[len(SOURCE.parts)] == "testing":
            continue
        for function, node in _calls(ast.parse(path.read_text())):
            called = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            results.setdefault(called, set()).add((path.relative_to(SOURCE).as_posix(), function))
    return results


def uses(name: str) -> set[tuple[str, str]]:
    """Where a name is called: the file and the function around it."""
    return everything().get(name, set())


def _calls(tree: ast.AST, function: str = "") -> Iterator[tuple[str, ast.Call]]:
    for node in ast.iter_child_nodes(tree):
        name = node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        if isinstance(node, ast.Call):
            yield function, node
        yield from _calls(node, name)


def test_a_spec_is_made_in_two_places_and_both_ask_the_policy() -> None:
    assert uses("RunSpec") == MAKES_A_SPEC
    assert ("core/machine.py", "_request") in uses("narrow")
    assert ("core/spawn.py", "_child_spec") in uses("grant_tools")
    assert ("core/spawn.py", "grant_tools") in uses("for_child")
    assert ("core/capabilities.py", "for_child") in uses("derive")


def test_a_run_is_created_only_with_such_a_spec_or_from_the_store() -> None:
    assert uses("create_run") == MAKES_A_RUN
    assert uses("register_run") == REGISTERS_A_RUN


def test_a_root_is_requested_only_by_the_front_door() -> None:
    assert uses("Requested") == REQUESTS


def test_orders_reach_the_machine_only_as_the_answer_of_a_tool() -> None:
    assert uses("ActionsReturned") == {("runtime/tool_events.py", "of")}
    assert ("core/run.py", "_take_actions") in uses("plan")


def test_only_the_policy_makes_capabilities_for_a_run() -> None:
    core = {
        (file, function)
        for file, function in uses("Permissions")
        if file.startswith(("core/", "runtime/"))
    }
    # The others are requests to the policy: what an agent can reach at all, and where it may write.
    asks = {
        ("core/machine.py", "_request"),
        ("core/spawn.py", "grant_tools"),
        ("core/spawn.py", "_child_spec"),
        ("core/writers.py", "placed"),
    }
    policy = {("core/capabilities.py", "derive"), ("core/capabilities.py", "for_child")}
    assert core - policy - asks <= {
        (f, "")
        for f in (
            "core/spec.py",
            "core/events.py",
            "core/values.py",
            "core/state.py",
            "core/capabilities.py",
            "core/value_base.py",
        )
    }


def test_a_root_of_each_kind_has_no_more_than_was_asked_for() -> None:
    """Started, forked and resumed: the policy has the last word each time."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    async def main() -> list[Permissions]:
        async with Retinue() as retinue:
            one = Agent("one", model=Scripted(lambda request: "done"), tools=[look])
            access = Permissions(deny=("look",), mode="plan")
            first = (await retinue.run(one, "Go.", permissions=access)).id
            forked = await retinue.fork(first, "Go.", permissions=access)
            await retinue.wait(forked)
            resumed = await retinue.resume(first, permissions=access)
            await retinue.wait(resumed)
            rows = [await retinue._store.row(id) for id in (first, forked, resumed)]
            return [row.spec.permissions for row in rows if row is not None]

    amount = asyncio.run(main())
    assert [(h.deny, h.mode, h.tools) for h in amount] == [
        (("look",), "plan", ("artifact", "look"))
    ] * 3
