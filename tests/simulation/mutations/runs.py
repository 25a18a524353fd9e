"""Bugs in how runs are started and stepped, and in what they may do."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

MUTATIONS = [
    Mutation(
        "a reply to an old attempt is taken",
        "core/run.py",
        "        case Replied():\n            if event.attempt != state.attempt or state.retry_at "
        "is not None:",
        "        case Replied():\n            if False:",
    ),
    Mutation(
        "a lost model call is not made again",
        "core/run.py",
        "    return think(holding_slots(run, ctx.now), ctx, state.purpose)\n",
        "    return run\n",
    ),
    Mutation(
        "a lost model call was free",
        "core/run.py",
        "        run = book_estimate(run, ctx, state.hold)\n",
        "        ctx.tree.ledger.release(run.id, state.hold)\n",
    ),
    Mutation(
        "a model call that never left is paid for after a crash",
        "core/run.py",
        "    if state.attempt in event.unsent:\n",
        "    if False:\n",
    ),
    Mutation(
        "a stopped call that never left is paid for after a crash",
        "core/run.py",
        "        if lost_call.attempt in event.unsent:\n",
        "        if False:\n",
    ),
    Mutation(
        "a grant is not held from the parent",
        "core/spawn.py",
        "if any(hold) else NOTHING)",
        "if False else NOTHING)",
    ),
    Mutation(
        "one child too many",
        "core/spawn.py",
        "if limits.children is not None and live + n > limits.children:",
        "if limits.children is not None and live > limits.children:",
    ),
    Mutation(
        "a denial is not inherited",
        "core/capabilities.py",
        "deny=_union(parent.deny, request.deny)",
        "deny=request.deny",
    ),
    Mutation(
        "a denied tool is run",
        "core/capabilities.py",
        '        if tool in permissions.deny:\n            return f"{name} denies',
        '        if False:\n            return f"{name} denies',
    ),
    Mutation(
        "a result of an earlier turn is taken",
        "core/run.py",
        "    if turn != run.turn or index < 0 or",
        "    if index < 0 or",
    ),
    Mutation(
        "a stopping run never ends",
        "core/run.py",
        "            return run if is_held else conclude(run, ctx, state.ending)",
        "            return run",
    ),
    Mutation(
        "a child does not inherit the deadline",
        "core/spawn.py",
        "        create_run(tree, spec, grant, ctx.now, context, run.deadline)",
        "        create_run(tree, spec, grant, ctx.now, context, None)",
    ),
    Mutation(
        "a paused run sleeps through its news",
        "core/run.py",
        "                return run if state.all and ctx.stays(run) else resume(run, ctx)\n",
        "                return run\n",
    ),
    Mutation(
        "a call sleeps through what it waited for",
        "core/run.py",
        "            return go_on(stir(child_at_calls(run, calls, event, ctx), ctx), ctx)",
        "            return go_on(child_at_calls(run, calls, event, ctx), ctx)",
    ),
    Mutation(
        "who may outlive its parent is cancelled with it",
        "core/step_context.py",
        """if specs[c].request.on_parent_end != "keep"]""",
        "if specs[c]]",
    ),
]
