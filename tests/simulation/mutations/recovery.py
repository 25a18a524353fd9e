"""Bugs in what happens after a restart."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

MUTATIONS = [
    Mutation(
        "an unsafe tool is run again",
        "core/restarts.py",
        'if call.restart == "unsafe":',
        'if call.restart == "never":',
    ),
    Mutation(
        "a pure tool is not run again",
        "core/restarts.py",
        "            start_tool(run, ctx, call.index, call.call, again=True, made_at=calls.at, "
        "answer=answer)",
        "            pass",
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
        "a tool that was woken is forgotten in a restart",
        "core/restarts.py",
        "            start_woken(run, ctx, watch, again=True, made_at=calls.at)\n",
        "            pass\n",
    ),
    Mutation(
        "a run is blamed for deaths at which others were suspected too",
        "core/suspects.py",
        "past.alone + 1 if past.on_trial else 0",
        "past.alone + 1",
    ),
    Mutation(
        "what is asked for is begun while it is written",
        "runtime/engine.py",
        "            self.commits.begin(changes, waiting)\n",
        "            self.on_record.update(changes.runs)\n"
        "            for effect in changes.effects:\n"
        "                self.performer.perform(effect)\n"
        "            changes.effects = []\n"
        "            self.commits.begin(changes, waiting)\n",
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
        "self.commits.under_way is None and trees.has_changes",
        "trees.has_changes",
        "engine",
    ),
    Mutation(
        "suspects are not tried by parts",
        "core/suspects.py",
        "    cuts = [i * len(ids) // n for i in range(n + 1)]\n",
        "    cuts = [0, 0, len(ids)]\n",
    ),
    Mutation(
        "suspects are never tried by quarters",
        "core/suspects.py",
        "2 if most < QUARTERED_AFTER else 4",
        "2",
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
        "suspicion.alone >= limits.max_deaths + suspicion.cleared",
        "suspicion.alone >= limits.max_deaths",
    ),
    Mutation(
        "a death without whoever is on trial does not count for it",
        "core/suspects.py",
        "past.cleared + (past.on_trial or past.alone > 0)",
        "past.cleared",
    ),
    Mutation(
        "who is left alone is taken up at once",
        "core/suspects.py",
        "        parts = [*_parts(blamed, 2 if most < QUARTERED_AFTER else 4), sorted(others)]\n",
        "        parts = [blamed, [], sorted(others)]\n",
    ),
]
