"""Bugs in turns: replies, tool calls, questions."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

MUTATIONS = [
    Mutation(
        "a reply is not paid for",
        "core/reply.py",
        "settle(run.id, state.hold, (used.tokens, used.nanos, 1, 0), guess(used, ctx))",
        "settle(run.id, state.hold, (0, 0, 0, 0))",
    ),
    Mutation(
        "nothing is held before a call",
        "core/turn.py",
        "    ctx.tree.ledger.hold(run.id, hold)\n",
        "",
    ),
    Mutation(
        "attempts are not counted",
        "core/turn.py",
        "attempt=run.attempt + 1,\n        purpose",
        "attempt=1,\n        purpose",
    ),
    Mutation(
        "a joined child stays pending", "core/calls.py", "    del fan.pending[outcome.id]\n", ""
    ),
    Mutation(
        "a returning run takes no slot",
        "core/calls.py",
        "    if lanes and not holds_slots(run):",
        "    if False:",
    ),
    Mutation(
        "a waiting run keeps its slot",
        "core/calls.py",
        "    if not isinstance(state, Working):\n        free_slots(run, ctx)\n",
        "",
    ),
    Mutation(
        "who waits for its budget keeps its slots",
        "core/turn.py",
        "    free_slots(run, ctx)\n    if not progress.ticket:",
        "    if not progress.ticket:",
    ),
    Mutation(
        "who waits a second time goes to the end of the line",
        "core/turn.py",
        "    if not progress.ticket:\n",
        "    if True:\n",
    ),
    Mutation(
        "who waits for its provider keeps what its call may cost",
        "core/reply.py",
        "                ctx.tree.ledger.release(run.id, again.hold)\n                again =",
        "                _ =",
    ),
    Mutation(
        "the last turn of whoever owns a limit is not kept back",
        "core/turn.py",
        "    ledger.keep(run.id, ask.last)\n",
        "",
    ),
    Mutation("mail is never read", "core/turn.py", "    run = read_mail(run, ctx)\n", ""),
    Mutation(
        "a submission beside other calls is taken",
        "core/call_dispatch.py",
        'if len(calls) > 1 and submits else ""',
        'if False else ""',
    ),
    Mutation(
        "a joined result is left out",
        "core/fan_results.py",
        "run, ToolMessage(call_id=fan.call_id, name=fan.name, text=text, error=error)\n",
        'run, ToolMessage(call_id=fan.call_id, name=fan.name, text="", error=error)\n',
    ),
    Mutation(
        "a steered parent loses results that were back",
        "core/calls.py",
        '    text = plain_result(fan.in_order())[0] if fan.ended else ""',
        '    text = ""',
    ),
    Mutation(
        "a wait for the first is a wait for all",
        "core/calls.py",
        "not live or (watch.first and live < len(watch.runs))",
        "not live",
    ),
    Mutation(
        "a wait is kept after its call has its result",
        "core/calls.py",
        "    return replace(calls, tools=calls.tools & bit, woken=calls.woken & bit, waits=waits)",
        "    return replace(calls, tools=calls.tools & bit, woken=calls.woken & bit)",
    ),
    Mutation(
        "a run does not stay for those it waits for",
        "core/reply.py",
        "    if ctx.stays(run):\n",
        "    if False:\n",
    ),
    Mutation(
        "a permitted tool takes a slot that it does not hold",
        "core/calls.py",
        "wait_in(run, ctx, Working(calls=calls, has_slots=holds_slots(run)))",
        "wait_in(run, ctx, Working(calls=calls))",
    ),
    Mutation(
        "a denied call is made", "core/questions.py", "    if not event.allow:\n", "    if False:\n"
    ),
    Mutation(
        "what needs a permission is made without one",
        "core/call_dispatch.py",
        '    if ctx.request.questions != "ask":\n        why',
        '    if ctx.request.questions != "ask":\n        return None, None\n        why',
    ),
    Mutation(
        "a question stays when it was answered",
        "core/questions.py",
        "    questions = tuple(q for q in calls.questions if q.index != index)\n    calls = "
        "replace(calls, tools",
        "    questions = calls.questions\n    calls = replace(calls, tools",
    ),
    Mutation(
        "a joined result does not tell who is missing behind it",
        "core/fan_results.py",
        'return post(run, Mail(seq=0, text=note, kind="note"), ctx) if note else run',
        "return run",
    ),
]
