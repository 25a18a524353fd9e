"""Bugs in how runs end, and in who hears of it."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

MUTATIONS = [
    Mutation(
        "an ended run keeps its slot",
        "core/ending.py",
        "    free_slots(run, ctx)\n    return run\n",
        "    return run\n",
    ),
    Mutation(
        "a parent is not told of its child's end",
        "core/ending.py",
        "    if tree.is_live(spec.parent):\n        ctx.post_event",
        "    if False:\n        ctx.post_event",
    ),
    Mutation("an account is never closed", "core/ending.py", "    tree.ledger.close(run.id)\n", ""),
    Mutation(
        "children outlive a parent that must not be outlived",
        "core/ending.py",
        "    for child in live:\n        ctx.post_event(child, take_along",
        "    live = []\n    for child in live:\n        ctx.post_event(child, take_along",
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
        "    ctx.tree.dismiss(event.child)\n    if child.request",
        "    if child.request",
    ),
    Mutation(
        "a stopped call that never left is paid for",
        "core/ending.py",
        "    if not event.sent:\n        ctx.tree.ledger.release(run.id, call.hold)\n",
        "    if not event.sent:\n        run = book_estimate(run, ctx, call.hold)\n",
    ),
    Mutation(
        "a bound counts as known",
        "core/ending.py",
        "        nanos_estimated=bound.nanos,\n",
        "",
    ),
    Mutation(
        "who is cancelled stays in line",
        "core/ending.py",
        "            ctx.tree.ledger.leave(run.id)\n",
        "            pass\n",
    ),
    Mutation(
        "an empty end is a success",
        "core/ending.py",
        '    if state == "completed" and not text.strip():',
        "    if False:",
    ),
    Mutation(
        "a delivery is given up at once",
        "core/delivery.py",
        "            if delivery.bounces >= limits.delivery_tries:",
        "            if True:",
    ),
    Mutation(
        "an end is not announced",
        "core/ending.py",
        "    if not request.announce or not spec.origin.channel:",
        "    if True:",
    ),
    Mutation(
        "a child is deleted before its parent's call is closed",
        "core/children.py",
        "                fan.discard[child.id] = child\n",
        "                ctx.tree.changes.forgotten.append(event.child)\n",
    ),
    Mutation(
        "who asked not to be told is told",
        "core/children.py",
        '    if child.request.join == "none" and (\n'
        "        not child.request.tell_parent or skipped(child.request, outcome.ending)\n    ):\n",
        "    if False:\n",
    ),
    Mutation(
        "a group is summed up before its last member",
        "core/ending.py",
        "    if request.group_size and n_ended == request.group_size and not is_killed:",
        "    if request.group_size and n_ended:",
    ),
    Mutation(
        "an ended member counts for its group",
        "core/ending.py",
        "    tree.leave_group(spec)\n",
        "",
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
        "            out += [] if spec.request.stay_open else [(label, id)]\n",
        "            pass\n",
    ),
    Mutation(
        "news does not tell who is missing behind it",
        "core/children.py",
        "    note, announced = note_of(outcome.ending), child.request.announce\n",
        '    note, announced = "", child.request.announce\n',
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
        "who ended a run is not told",
        "core/children.py",
        "        by=who,\n        along",
        '        by="",\n        along',
    ),
]
