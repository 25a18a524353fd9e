"""Bugs in a tree, in its lanes, and between trees."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

MUTATIONS = [
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
        "nobody is promoted when a slot is freed",
        "core/lanes.py",
        "        if state.waiting and state.held < state.size:",
        "        if False:",
    ),
    Mutation(
        "a raised limit is forgotten by the fold of the log",
        "core/trees.py",
        "        machine.fold(tree, entry, event)\n",
        '        if type(event).__name__ != "LimitChanged":\n            machine.fold(tree, '
        "entry, event)\n",
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
        "a time limit is ignored",
        "core/admission.py",
        "        deadline = sooner(deadline, ctx.now + request.timeout_ms)",
        "        pass",
    ),
    Mutation(
        "what was called off is begun",
        "core/trees.py",
        "        if AbortRun in map(type, batch.effects):",
        "        if False:",
    ),
    Mutation(
        "a child is deleted before its announcement has arrived",
        "core/tree.py",
        "        if id not in self.children and path not in self._announcing:",
        "        if id not in self.children:",
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
        "who asks is not found by its question",
        "core/tree.py",
        "            self._index.questions.update((question.id, after.id) for question in new)\n",
        "            pass\n",
    ),
    Mutation(
        "a question that was answered is still found",
        "core/tree.py",
        "            self._index.questions.pop(old_question.id, None)\n",
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
        "            self._step(tree, sender, MailReceived(mail=mail))\n",
        "            pass\n",
    ),
    Mutation(
        "a letter is kept when the tree of its sender is set aside",
        "core/trees.py",
        "            roots += [r for r in self._letters.get(one, ()) if r not in roots]\n",
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
]
