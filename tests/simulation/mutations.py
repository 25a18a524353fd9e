"""Planted bugs: each must be found by the simulation within 2,000 seeds. This is the test of the test.

A mutation replaces one snippet that stands exactly once in one file; when the file changes so that it does not, the
mutation has to be written again.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    name: str
    file: str
    old: str
    new: str


MUTATIONS = [
    Mutation(
        "a reply is not paid for",
        "core/reply.py",
        "settle(run.id, state.hold, (used.tokens, used.nanos, 1, 0))",
        "settle(run.id, state.hold, (0, 0, 0, 0))",
    ),
    Mutation("nothing is held before a call", "core/turn.py", "    ledger.hold(run.id, need)\n", ""),
    Mutation(
        "only the run's own budget is asked",
        "core/turn.py",
        "in enumerate(d.roster.ledger.chain(run.id)):",
        "in enumerate(d.roster.ledger.chain(run.id)[:1]):",
    ),
    Mutation("attempts are not counted", "core/turn.py", "    attempt = run.attempt + 1\n", "    attempt = 1\n"),
    Mutation(
        "a reply to an old attempt is taken",
        "core/run.py",
        "        case Replied():\n            if event.attempt != state.attempt or state.retry_at is not None:",
        "        case Replied():\n            if False:",
    ),
    Mutation(
        "an ended run keeps its slot", "core/ending.py", "    free_slots(run, d)\n    return run\n", "    return run\n"
    ),
    Mutation(
        "a parent is not told of its child's end",
        "core/ending.py",
        "    if roster.is_live(spec.parent):\n        d.tell",
        "    if False:\n        d.tell",
    ),
    Mutation("an account is never closed", "core/ending.py", "    roster.ledger.close(run.id)\n", ""),
    Mutation(
        "children outlive a parent that must not be outlived",
        "core/ending.py",
        "    for child in live:\n        d.tell(child, CancelAsked",
        "    live = []\n    for child in live:\n        d.tell(child, CancelAsked",
    ),
    Mutation("a joined child stays pending", "core/calls.py", "    del fan.pending[outcome.id]\n", ""),
    Mutation(
        "a child is counted before it has ended",
        "core/kin.py",
        " or not isinstance(child.state, Ended):",
        ":",
    ),
    Mutation(
        "a child that reported stays on the roster",
        "core/kin.py",
        "    d.roster.dismiss(event.child)\n    if child.order",
        "    if child.order",
    ),
    Mutation(
        "mail is read and stays in the box",
        "core/roster.py",
        "list(self.mail.pop(id, ()))",
        "list(self.mail.get(id, ()))",
    ),
    Mutation(
        "mail that was read comes back after a crash",
        "core/roster.py",
        "                self.changes.taken.append((id, mail.seq))",
        "                pass",
    ),
    Mutation(
        "an unsafe tool is run again",
        "core/recovery.py",
        'if found.restart == "unsafe":',
        'if found.restart == "never":',
    ),
    Mutation(
        "a pure tool is not run again",
        "core/recovery.py",
        "            start_tool(run, d, found.index, found.call, again=True)",
        "            pass",
    ),
    Mutation(
        "a lost model call is not made again",
        "core/run.py",
        "            return think(seated(run, d.now), d, state.purpose)\n",
        "            return run\n",
    ),
    Mutation(
        "a lost model call was free",
        "core/run.py",
        "            run = book_estimate(again(run, in_flight=not event.clean), d, state.hold)\n",
        "            d.roster.ledger.release(run.id, state.hold)\n",
    ),
    Mutation(
        "a returning run takes no slot",
        "core/calls.py",
        "    if lanes and not is_seated(run):",
        "    if False:",
    ),
    Mutation(
        "a waiting run keeps its slot",
        "core/calls.py",
        "    if not isinstance(state, Working):\n        free_slots(run, d)\n",
        "",
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
        "a denial is not inherited", "core/policy.py", "deny=_union(parent.deny, request.deny)", "deny=request.deny"
    ),
    Mutation(
        "a denied tool is run",
        "core/policy.py",
        '        if tool in held.deny:\n            return f"{name} denies',
        '        if False:\n            return f"{name} denies',
    ),
    Mutation(
        "nobody is promoted when a slot is freed",
        "core/roster.py",
        "            if lane.waiting and lane.held < lane.size:",
        "            if False:",
    ),
    Mutation("mail is never read", "core/turn.py", "    run = read_mail(run, d)\n", ""),
    Mutation(
        "an empty end is a success",
        "core/ending.py",
        '    if state == "completed" and not text.strip():',
        "    if False:",
    ),
    Mutation(
        "a submission beside other calls is taken",
        "core/calls.py",
        "if len(calls) > 1 and submits else None",
        "if False else None",
    ),
    Mutation(
        "a delivery is given up at once",
        "core/outbox.py",
        "            if delivery.bounces >= rules.delivery_tries:",
        "            if True:",
    ),
    Mutation(
        "an end is not announced",
        "core/ending.py",
        "    if not order.announce or not spec.origin.channel:",
        "    if True:",
    ),
    Mutation("slots are not counted after a restart", "core/machine.py", "            roster.reseat()\n", ""),
    Mutation(
        "a restarted parent forgets whom it waits for",
        "runtime/recover.py",
        "    for row in snapshot.open:\n        _hang(roster, row, pending=True)\n",
        "",
    ),
    Mutation(
        "a restarted parent forgets who came back",
        "runtime/recover.py",
        "        _hang(roster, row, pending=False)\n",
        "        pass\n",
    ),
    Mutation(
        "mail is lost by a restart",
        "runtime/recover.py",
        "        roster.mail.setdefault(run, deque()).append(mail)\n",
        "        pass\n",
    ),
    Mutation(
        "a joined result is left out",
        "core/calls.py",
        "        run = d.append(run, Result(call_id=fan.call_id, name=fan.name, text=text, error=error))\n",
        '        run = d.append(run, Result(call_id=fan.call_id, name=fan.name, text="", error=error))\n',
    ),
    Mutation(
        "a steered parent loses results that were back",
        "core/calls.py",
        '        text = plain_result(in_order(fan))[0] if fan.ended else ""',
        '        text = ""',
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
        "            return run if d.holds_back(run, all=state.all) else conclude(run, d, state.ending)",
        "            return run",
    ),
    Mutation(
        "a child does not inherit the deadline",
        "core/spawn.py",
        "        enlist(roster, spec, grant, d.now, context, run.deadline)",
        "        enlist(roster, spec, grant, d.now, context, None)",
    ),
    Mutation(
        "a time limit is ignored",
        "core/run.py",
        "        deadline = sooner(deadline, d.now + order.timeout_ms)",
        "        pass",
    ),
    Mutation("a grant does not go back", "core/ledger.py", "            self._give_back(account)\n", ""),
    Mutation(
        "what is held counts as free",
        "core/ledger.py",
        "return limit - self.spent[i] - self.held[i] -",
        "return limit - self.spent[i] -",
    ),
    Mutation(
        "what was called off is begun",
        "core/roster.py",
        "        if any(isinstance(e, Abort) for e in changes.effects):",
        "        if False:",
    ),
    Mutation(
        "a paused run sleeps through its news",
        "core/run.py",
        "            return run if silent or (state.all and d.stays(run)) else resume(run, d)",
        "            return run",
    ),
    Mutation(
        "a child is deleted before its announcement has arrived",
        "core/roster.py",
        "        if id not in self.children and not waits:",
        "        if id not in self.children:",
    ),
    Mutation(
        "a child is deleted before its parent's call is closed",
        "core/kin.py",
        "                fan.discard.append(child)\n",
        "                d.roster.changes.forgotten.append(event.child)\n",
    ),
    Mutation(
        "a call sleeps through what it waited for",
        "core/run.py",
        "            return stir(child_at_calls(run, calls, event, d), d)",
        "            return child_at_calls(run, calls, event, d)",
    ),
    Mutation(
        "a wait for the first is a wait for all",
        "core/calls.py",
        "not live or (watch.first and live < len(watch.runs))",
        "not live",
    ),
    Mutation(
        "a tool that was woken is forgotten in a restart",
        "core/recovery.py",
        "            start_woken(run, d, watch, again=True)\n",
        "            pass\n",
    ),
    Mutation(
        "a wait is kept after its call has its result",
        "core/calls.py",
        "    return replace(calls, tools=calls.tools & bit, woken=calls.woken & bit, waits=waits)",
        "    return replace(calls, tools=calls.tools & bit, woken=calls.woken & bit)",
    ),
    Mutation(
        "who may outlive its parent is cancelled with it",
        "core/desk.py",
        """if specs[c].order.bond != "keep"]""",
        "if specs[c]]",
    ),
    Mutation(
        "a run does not stay for those it waits for",
        "core/reply.py",
        "    if d.stays(run):\n",
        "    if False:\n",
    ),
    Mutation(
        "who asked not to be told is told",
        "core/kin.py",
        """    if child.order.join == "none" and (not child.order.news or skipped(child.order, outcome.ending)):\n""",
        "    if False:\n",
    ),
    Mutation(
        "a group is summed up before its last member",
        "core/ending.py",
        "    if order.group_size and done == order.group_size:",
        "    if order.group_size and done:",
    ),
    Mutation(
        "an ended member counts for its group",
        "core/ending.py",
        "    roster.leave_group(spec)\n",
        "",
    ),
    Mutation(
        "a permitted tool takes a slot that it does not hold",
        "core/calls.py",
        "wait_in(run, d, Working(calls=calls, seated=is_seated(run)))",
        "wait_in(run, d, Working(calls=calls))",
    ),
    Mutation("a denied call is made", "core/asking.py", "    if not event.allow:\n", "    if False:\n"),
    Mutation(
        "what needs a permission is made without one",
        "core/calls.py",
        '    if d.order.questions != "ask":\n        why',
        '    if d.order.questions != "ask":\n        return None, None\n        why',
    ),
    Mutation(
        "a question stays when it was answered",
        "core/asking.py",
        "    questions = tuple(q for q in calls.questions if q.index != index)\n    calls = replace(calls, tools",
        "    questions = calls.questions\n    calls = replace(calls, tools",
    ),
]
