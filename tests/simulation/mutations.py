"""Planted bugs: each must be found by the simulation within 2,000 seeds. This is the test of the
test.

A mutation replaces one snippet that stands exactly once in one file; when the file changes so that
it does not, the mutation has to be written again."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    kind: str = "pure"
    """On which of the two simulations it is to be found; on the engine's within 200 seeds."""


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
        "only the run's own budget is asked",
        "core/ledger.py",
        "            for n, account in enumerate(self.chain(id)):\n",
        "            for n, account in enumerate(self.chain(id)[:1]):\n",
    ),
    Mutation(
        "attempts are not counted",
        "core/turn.py",
        "attempt=run.attempt + 1,\n        purpose",
        "attempt=1,\n        purpose",
    ),
    Mutation(
        "a reply to an old attempt is taken",
        "core/run.py",
        "        case Replied():\n            if event.attempt != state.attempt or state.retry_at "
        "is not None:",
        "        case Replied():\n            if False:",
    ),
    Mutation(
        "an ended run keeps its slot",
        "core/ending.py",
        "    free_slots(run, ctx)\n    return run\n",
        "    return run\n",
    ),
    Mutation(
        "a parent is not told of its child's end",
        "core/ending.py",
        "    if tree.is_live(spec.parent):\n        ctx.tell",
        "    if False:\n        ctx.tell",
    ),
    Mutation("an account is never closed", "core/ending.py", "    tree.ledger.close(run.id)\n", ""),
    Mutation(
        "children outlive a parent that must not be outlived",
        "core/ending.py",
        "    for child in live:\n        ctx.tell(child, take_along",
        "    live = []\n    for child in live:\n        ctx.tell(child, take_along",
    ),
    Mutation(
        "a joined child stays pending", "core/calls.py", "    del fan.pending[outcome.id]\n", ""
    ),
    Mutation(
        "a child is counted before it has ended",
        "core/children.py",
        " or not isinstance(child.state, Ended):",
        ":",
    ),
    Mutation(
        "a child that reported stays in its tree",
        "core/children.py",
        "    ctx.tree.dismiss(event.child)\n    if child.order",
        "    if child.order",
    ),
    Mutation(
        "mail is read and stays in the box",
        "core/tree.py",
        "list(self.mail.pop(id, ()))",
        "list(self.mail.get(id, ()))",
    ),
    Mutation(
        "mail that was read comes back after a crash",
        "core/tree.py",
        "                self.changes.taken.append((id, mail.seq))",
        "                pass",
    ),
    Mutation(
        "an unsafe tool is run again",
        "core/restarts.py",
        'if found.restart == "unsafe":',
        'if found.restart == "never":',
    ),
    Mutation(
        "a pure tool is not run again",
        "core/restarts.py",
        "            start_tool(run, ctx, found.index, found.call, again=True)",
        "            pass",
    ),
    Mutation(
        "a lost model call is not made again",
        "core/run.py",
        "    return think(seated(run, ctx.now), ctx, state.purpose)\n",
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
        "        if lost.attempt in event.unsent:\n",
        "        if False:\n",
    ),
    Mutation(
        "a stopped call that never left is paid for",
        "core/ending.py",
        "    if not event.sent:\n        ctx.tree.ledger.release(run.id, found.hold)\n",
        "    if not event.sent:\n        run = book_estimate(run, ctx, found.hold)\n",
    ),
    Mutation(
        "a bound counts as known",
        "core/ending.py",
        "    used = Usage(estimated=tokens, nanos=nanos, nanos_estimated=nanos, turns=turns, "
        "calls=calls)\n",
        "    used = Usage(estimated=tokens, nanos=nanos, turns=turns, calls=calls)\n",
    ),
    Mutation(
        "a bound is known to be one in its own run alone",
        "core/ledger.py",
        "        for account in chain if guess != SURE else ():\n",
        "        for account in chain[:1] if guess != SURE else ():\n",
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
        "    if not isinstance(state, Working):\n        free_slots(run, ctx)\n",
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
        "a denial is not inherited",
        "core/capabilities.py",
        "deny=_union(parent.deny, request.deny)",
        "deny=request.deny",
    ),
    Mutation(
        "a denied tool is run",
        "core/capabilities.py",
        '        if tool in held.deny:\n            return f"{name} denies',
        '        if False:\n            return f"{name} denies',
    ),
    Mutation(
        "nobody is promoted when a slot is freed",
        "core/lanes.py",
        "        if state.waiting and state.held < state.size:",
        "        if False:",
    ),
    Mutation(
        "what comes back is told to nobody who waits for it",
        "core/ledger.py",
        "            if sign < 0 and self.waits:\n",
        "            if False:\n",
    ),
    Mutation(
        "who waits for its budget keeps its slots",
        "core/turn.py",
        "    free_slots(run, ctx)\n    if not kept.ticket:",
        "    if not kept.ticket:",
    ),
    Mutation(
        "who is cancelled stays in line",
        "core/ending.py",
        "            ctx.tree.ledger.leave(run.id)\n",
        "            pass\n",
    ),
    Mutation(
        "nobody waits for what others hold",
        "core/ledger.py",
        "                if need and found is GO and (is_late or",
        "                if False and (is_late or",
    ),
    Mutation(
        "only the first in line is ever told",
        "core/budget_queues.py",
        "            self.ease(spot[0])\n",
        "            pass\n",
    ),
    Mutation(
        "who comes later is served first",
        "core/ledger.py",
        "        if first is not None and first[1] < ticket:\n            return True\n",
        "        return False\n",
    ),
    Mutation(
        "who waits a second time goes to the end of the line",
        "core/turn.py",
        "    if not kept.ticket:\n",
        "    if True:\n",
    ),
    Mutation(
        "who has a grant waits for the grants of others",
        "core/ledger.py",
        "made.append(Draw(account, amounts, n == 0, has_grant))",
        "made.append(Draw(account, amounts, n == 0, False))",
    ),
    Mutation(
        "a grant is waited for in which everybody waits for mail",
        "core/ledger.py",
        " or not self._moving.get(id):",
        ":",
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
    Mutation(
        "a raised limit wakes nobody",
        "core/ledger.py",
        "            self.ease(one.id)\n",
        "            pass\n",
    ),
    Mutation(
        "a raised limit is lost by a restart",
        "core/ledger.py",
        "        self.touched[account.id] = account\n        for one in",
        "        for one in",
    ),
    Mutation(
        "a raised limit is forgotten by the fold of the log",
        "core/trees.py",
        "        machine.fold(tree, entry, event)\n",
        '        if type(event).__name__ != "LimitChanged":\n            machine.fold(tree, '
        "entry, event)\n",
    ),
    Mutation(
        "everybody who waits at one limit asks",
        "core/ledger.py",
        "        is_news = self._is_news(account, lack)\n",
        "        is_news = True\n",
    ),
    Mutation(
        "an answer to an old question counts",
        "core/limit_questions.py",
        "    if event.question and (",
        "    if False and (",
    ),
    Mutation(
        "what a child gets more is taken from nobody",
        "core/ledger.py",
        "        self.hold(account.parent, funded(account, add))\n",
        "",
    ),
    Mutation(
        "more is given to a child than there is",
        "core/limit_questions.py",
        "        if free is not None and free < more:",
        "        if False:",
    ),
    Mutation(
        "who waits for an answer stands in no line after a restart",
        "core/admission.py",
        "    ledger.wait(run.id, ask, state.kept.ticket, Verdict",
        "    (lambda *told: None)(run.id, ask, state.kept.ticket, Verdict",
    ),
    Mutation(
        "a question stays when its run has gone on",
        "core/tree.py",
        "            self.asking[old].pop(before.id, None)\n",
        "",
    ),
    Mutation("mail is never read", "core/turn.py", "    run = read_mail(run, ctx)\n", ""),
    Mutation(
        "an empty end is a success",
        "core/ending.py",
        '    if state == "completed" and not text.strip():',
        "    if False:",
    ),
    Mutation(
        "a submission beside other calls is taken",
        "core/call_dispatch.py",
        'if len(calls) > 1 and submits else ""',
        'if False else ""',
    ),
    Mutation(
        "a delivery is given up at once",
        "core/delivery.py",
        "            if delivery.bounces >= rules.delivery_tries:",
        "            if True:",
    ),
    Mutation(
        "an end is not announced",
        "core/ending.py",
        "    if not order.announce or not spec.origin.channel:",
        "    if True:",
    ),
    Mutation(
        "slots are not counted after a restart",
        "core/trees.py",
        "            tree.reseat()\n",
        "            pass\n",
    ),
    Mutation(
        "shared slots are not counted after a restart",
        "core/trees.py",
        "                        self.lanes.hold(spec.id, lane)\n",
        "                        pass\n",
    ),
    Mutation(
        "a lane has no end",
        "core/lanes.py",
        "        if state.held >= state.size:",
        "        if False:",
    ),
    Mutation(
        "a shared slot is not given back",
        "core/tree.py",
        "            if lane.is_shared:\n                "
        "self.changes.effects.append(FreeSlot(run=id, lane=lane))\n",
        "            if lane.is_shared:\n                pass\n",
    ),
    Mutation(
        "who ends stays in the queue of a shared lane",
        "core/tree.py",
        "            self.asked.discard(id)\n            "
        "self.changes.effects.append(FreeSlot(run=id, lane=lane))\n",
        "            self.asked.discard(id)\n",
    ),
    Mutation(
        "a slot in a shared lane is not asked for",
        "core/tree.py",
        "        self.changes.effects.append(AskSlot(run=id, lane=lane, back=back, "
        "ticket=ticket))\n",
        "        pass\n",
    ),
    Mutation(
        "who is granted a shared slot is not counted",
        "core/lanes.py",
        "            self.holders[(granted[0], lane.name)] = None\n",
        "            pass\n",
    ),
    Mutation(
        "a restarted parent forgets whom it waits for",
        "runtime/recover.py",
        "    for row in snapshot.open:\n        _hang(_tree_of(trees, row), row, pending=True)\n",
        "",
    ),
    Mutation(
        "a restarted parent forgets who came back",
        "runtime/recover.py",
        "        _hang(_tree_of(trees, row), row, pending=False)\n",
        "        pass\n",
    ),
    Mutation(
        "mail is lost by a restart",
        "runtime/recover.py",
        "            tree.mail.setdefault(run, deque()).append(mail)\n",
        "            pass\n",
    ),
    Mutation(
        "a joined result is left out",
        "core/fan_results.py",
        "        run = ctx.append(run, Result(call_id=fan.call_id, name=fan.name, text=text, "
        "error=error))\n",
        '        run = ctx.append(run, Result(call_id=fan.call_id, name=fan.name, text="", '
        "error=error))\n",
    ),
    Mutation(
        "a steered parent loses results that were back",
        "core/calls.py",
        '        text = plain_result(fan.in_order())[0] if fan.ended else ""',
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
        "            return run if is_held else conclude(run, ctx, state.ending)",
        "            return run",
    ),
    Mutation(
        "a child does not inherit the deadline",
        "core/spawn.py",
        "        enlist(tree, spec, grant, ctx.now, context, run.deadline)",
        "        enlist(tree, spec, grant, ctx.now, context, None)",
    ),
    Mutation(
        "a time limit is ignored",
        "core/admission.py",
        "        deadline = sooner(deadline, ctx.now + order.timeout_ms)",
        "        pass",
    ),
    Mutation(
        "a grant does not go back", "core/ledger.py", "            self._give_back(account)\n", ""
    ),
    Mutation(
        "what is held counts as free",
        "core/account.py",
        "limit - self.spent[i] - self.held[i] - self.reserve[i]",
        "limit - self.spent[i] - self.reserve[i]",
    ),
    Mutation(
        "what was called off is begun",
        "core/tree.py",
        "        if Abort in map(type, changes.effects):",
        "        if False:",
    ),
    Mutation(
        "a paused run sleeps through its news",
        "core/run.py",
        "            return run if silent or (state.all and ctx.stays(run)) else resume(run, ctx)",
        "            return run",
    ),
    Mutation(
        "a child is deleted before its announcement has arrived",
        "core/tree.py",
        "        if id not in self.children and path not in self._announcing:",
        "        if id not in self.children:",
    ),
    Mutation(
        "a child is deleted before its parent's call is closed",
        "core/children.py",
        "                fan.discard[child.id] = child\n",
        "                ctx.tree.changes.forgotten.append(event.child)\n",
    ),
    Mutation(
        "a call sleeps through what it waited for",
        "core/run.py",
        "            return stir(child_at_calls(run, calls, event, ctx), ctx)",
        "            return child_at_calls(run, calls, event, ctx)",
    ),
    Mutation(
        "a wait for the first is a wait for all",
        "core/calls.py",
        "not live or (watch.first and live < len(watch.runs))",
        "not live",
    ),
    Mutation(
        "a tool that was woken is forgotten in a restart",
        "core/restarts.py",
        "            start_woken(run, ctx, watch, again=True)\n",
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
        "core/step_context.py",
        """if specs[c].order.bond != "keep"]""",
        "if specs[c]]",
    ),
    Mutation(
        "a run does not stay for those it waits for",
        "core/reply.py",
        "    if ctx.stays(run):\n",
        "    if False:\n",
    ),
    Mutation(
        "who asked not to be told is told",
        "core/children.py",
        '    if child.order.join == "none" and (\n'
        "        not child.order.news or skipped(child.order, outcome.ending)\n    ):\n",
        "    if False:\n",
    ),
    Mutation(
        "a group is summed up before its last member",
        "core/ending.py",
        "    if order.group_size and done == order.group_size and not is_killed:",
        "    if order.group_size and done:",
    ),
    Mutation(
        "an ended member counts for its group",
        "core/ending.py",
        "    tree.leave_group(spec)\n",
        "",
    ),
    Mutation(
        "a permitted tool takes a slot that it does not hold",
        "core/calls.py",
        "wait_in(run, ctx, Working(calls=calls, seated=is_seated(run)))",
        "wait_in(run, ctx, Working(calls=calls))",
    ),
    Mutation(
        "a denied call is made", "core/questions.py", "    if not event.allow:\n", "    if False:\n"
    ),
    Mutation(
        "what needs a permission is made without one",
        "core/call_dispatch.py",
        '    if ctx.order.questions != "ask":\n        why',
        '    if ctx.order.questions != "ask":\n        return None, None\n        why',
    ),
    Mutation(
        "a question stays when it was answered",
        "core/questions.py",
        "    questions = tuple(q for q in calls.questions if q.index != index)\n    calls = "
        "replace(calls, tools",
        "    questions = calls.questions\n    calls = replace(calls, tools",
    ),
    Mutation(
        "a result whose parent has ended is passed on to nobody",
        "core/ending.py",
        "    elif spec.parent:\n        pass_on(run, ctx, ending)\n",
        "",
    ),
    Mutation(
        "whoever ends with its parent is said to have ended by itself",
        "core/ending.py",
        "        along=along,\n",
        "",
    ),
    Mutation(
        "a run is blamed for deaths at which others were suspected too",
        "core/suspects.py",
        "known.alone + 1 if known.on_trial else 0",
        "known.alone + 1",
    ),
    Mutation(
        "a helper that did not return is not counted",
        "core/provenance.py",
        "        n_lost=so_far.n_lost + (not is_part),\n",
        "",
    ),
    Mutation(
        "what a child rests on is forgotten by its parent",
        "core/provenance.py",
        "    if not theirs.n_started:",
        "    if True:",
    ),
    Mutation(
        "who is still at work counts as back",
        "core/ending.py",
        "            out += [] if spec.order.host else [(label, id)]\n",
        "            pass\n",
    ),
    Mutation(
        "a joined result does not tell who is missing behind it",
        "core/fan_results.py",
        'return post(run, Mail(seq=0, text=note, kind="note"), ctx) if note else run',
        "return run",
    ),
    Mutation(
        "news does not tell who is missing behind it",
        "core/children.py",
        "    note, announced = note_of(outcome.ending), child.order.announce\n",
        '    note, announced = "", child.order.announce\n',
    ),
    Mutation(
        "what an ended run has not read is read by nobody",
        "core/ending.py",
        '        if mail.kind == "news":\n',
        "        if False:\n",
    ),
    Mutation(
        "what an ended root has not read is told to nobody",
        "core/ending.py",
        '        ctx.say(mail.text, "passed on", mail.sender, note=mail.note)\n',
        "        pass\n",
    ),
    Mutation(
        "what is asked for is begun while it is written",
        "runtime/engine.py",
        "            self._commits.begin(changes, waiting)\n",
        "            self.on_record.update(changes.runs)\n"
        "            for effect in changes.effects:\n"
        "                self._perform(effect)\n"
        "            changes.effects = []\n"
        "            self._commits.begin(changes, waiting)\n",
        "engine",
    ),
    Mutation(
        "a batch is handed over before its news is taken",
        "runtime/engine.py",
        "trees.has_changes and trees.is_settled:",
        "trees.has_changes:",
        "engine",
    ),
    Mutation(
        "two batches are written at once",
        "runtime/engine.py",
        "self._commits.under_way is None and trees.has_changes",
        "trees.has_changes",
        "engine",
    ),
    Mutation(
        "what a cache gave to a child nobody above it knows",
        "core/ledger.py",
        "        for account in self.chain(id):\n            account.cache",
        "        for account in self.chain(id)[:1]:\n            account.cache",
    ),
    Mutation(
        "what was sent before a restart is expected to be in the cache after it",
        "core/tree.py",
        "        self.lanes, self.prefixes = Lanes(), Prefixes()\n",
        "        self.lanes = Lanes()\n",
    ),
    Mutation(
        "a slot that was granted to an earlier ticket is taken",
        "core/admission.py",
        " or (is_shared and event.ticket != state.ticket):",
        ":",
    ),
    Mutation(
        "who ended a run is not told",
        "core/children.py",
        "        by=who,\n        along",
        '        by="",\n        along',
    ),
    Mutation(
        "who asks is not found by its question",
        "core/tree.py",
        "            self._index.questions.update((asked.id, after.id) for asked in new)\n",
        "            pass\n",
    ),
    Mutation(
        "a question that was answered is still found",
        "core/tree.py",
        "            self._index.questions.pop(gone.id, None)\n",
        "            pass\n",
    ),
    Mutation(
        "a letter to another tree is lost",
        "core/trees.py",
        "        self._step(other, to, event)\n",
        "        pass\n",
    ),
    Mutation(
        "a letter that cannot be delivered is nobody's business",
        "core/trees.py",
        "            self._step(tree, sender, Posted(mail=Mail(seq=0, "
        "text=UNDELIVERED.format(why=why))))\n",
        "            pass\n",
    ),
    Mutation(
        "a letter is kept when the tree of its sender is set aside",
        "core/trees.py",
        "            found += [r for r in self._letters.get(one, ()) if r not in found]\n",
        "            pass\n",
    ),
    Mutation(
        "what a broken tree had changed is written",
        "core/trees.py",
        "self.by_root.get(root), self._touched.pop(root, None)",
        "self.by_root.get(root), self._touched.get(root)",
    ),
    Mutation(
        "a tree that is set aside keeps its slots",
        "core/trees.py",
        "            self._own.effects += [\n                FreeSlot(run=id, lane=lane) for lane",
        "            _ = [\n                FreeSlot(run=id, lane=lane) for lane",
    ),
    Mutation(
        "why a tree was set aside is not on record",
        "core/trees.py",
        "            self._own.runs[root] = replace(row, defect=error)\n",
        "            pass\n",
    ),
    Mutation(
        "a tree that is set aside is still held",
        "core/trees.py",
        "        self._close(tree)\n        for key in tree.deliveries:",
        "        for key in tree.deliveries:",
    ),
    Mutation(
        "suspects are not tried by halves",
        "core/suspects.py",
        "        half = len(blamed) // 2\n",
        "        half = 0\n",
    ),
    Mutation(
        "a run is suspected of a death at which it was not there",
        "core/suspects.py",
        "    elif was_there(run, event.epoch):\n",
        "    elif True:\n",
    ),
    Mutation(
        "who was cleared is blamed as soon as others",
        "core/suspects.py",
        "found.alone >= rules.max_deaths + found.cleared",
        "found.alone >= rules.max_deaths",
    ),
    Mutation(
        "a death without whoever is on trial does not count for it",
        "core/suspects.py",
        "known.cleared + (known.on_trial or known.alone > 0)",
        "known.cleared",
    ),
    Mutation(
        "who is left alone is taken up at once",
        "core/suspects.py",
        "        parts = [blamed[:half], blamed[half:], sorted(others)]\n",
        "        parts = [blamed, [], sorted(others)]\n",
    ),
]
