"""Bugs in the steps of tools: children that are awaited, answers, restarts."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

MUTATIONS = [
    Mutation(
        "a tool is run again while its children work",
        "core/tool_steps.py",
        "        if is_waiting(run, ctx, calls, lost_call.index):\n            continue\n",
        "",
    ),
    Mutation(
        "a tool that may not run twice is run again after a step",
        "core/tool_steps.py",
        '        if lost_call.restart == "unsafe":\n',
        "        if False:\n",
    ),
    Mutation(
        "what children reported to a call that is not repeated is lost",
        "core/tool_steps.py",
        "{listed(fan.in_order(), room)}",
        "",
    ),
    Mutation(
        "a child goes on for a function that has returned",
        "core/tool_steps.py",
        '            ctx.post_event(id, CancelAsked(by=run.id, reason=reason, who="parent"))\n',
        "            assert reason\n",
    ),
    Mutation(
        "a parked function does not go on",
        "core/tool_steps.py",
        "parked=calls.parked & ~ready, woken=calls.woken | ready)",
        "parked=calls.parked)",
    ),
    Mutation(
        "a function that waits keeps its slot",
        "core/step_taking.py",
        "            tools=calls.tools & ~bit,\n",
        "",
    ),
    Mutation(
        "children of a second step begin at 0 again",
        "core/spawn.py",
        "            item=first + n,\n",
        "            item=n,\n",
    ),
    Mutation(
        "the answer to a step is not kept",
        "core/tool_steps.py",
        "CallStep(index=index, key=question.step or ANSWER, text=text)",
        "CallStep(index=index, key=question.step or ANSWER)",
    ),
    Mutation(
        "the answer to a step is given to nobody",
        "core/tool_steps.py",
        "    if not any(c.index == index for c in calls.lost):\n",
        "    if False:\n",
    ),
    Mutation(
        "a background child is awaited as well",
        "core/spawn.py",
        'if fan_in and first.join == "step" else None',
        "if fan_in else None",
    ),
    Mutation(
        "an awaited child is forgotten by a restart",
        "runtime/recover.py",
        'spec.request.join == "none" or slot.turn',
        'spec.request.join in ("none", "step") or slot.turn',
    ),
    Mutation(
        "the time of a call changes when it is run again after a step",
        "core/tool_steps.py",
        "again=True, made_at=calls.at, answer=answer\n",
        "again=True, answer=answer\n",
        "engine",
    ),
]
