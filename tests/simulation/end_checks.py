"""What must hold when everything has come to its end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from retinue.core.cache_figures import NO_CACHE, Cached
from retinue.core.ids import digest
from retinue.core.spec import RunSpec
from retinue.core.trees import Trees
from tests.simulation import script
from tests.simulation.memory import now
from tests.simulation.violation import broken, must

if TYPE_CHECKING:
    from tests.simulation.books import Books
    from tests.simulation.pure import Simulation


def at_the_end(sim: Simulation) -> None:
    books, trees = sim.books, sim.trees
    for tree in trees.by_root.values():
        must(
            tree.deliveries and not tree.specs,
            f"I19 the tree of {tree.root} is kept and has nothing open",
        )
        for name in (
            "asking",
            "runs",
            "children",
            "lingering",
            "fans",
            "mail",
            "groups",
            "granted",
            "asked",
            "_n_by_parent_end",
        ):
            if getattr(tree, name):
                broken(f"I19 tree.{name} is not empty at the end: {getattr(tree, name)}")
        must(not tree.ledger.accounts, f"I19 accounts are left at the end: {tree.ledger.accounts}")
        must(not tree.lanes.by_name, f"I19 lanes are left at the end: {tree.lanes.by_name}")
    must(not trees.index.asking, "I19 a tree that has ended asks about a limit")
    must(
        not trees.index.runs and not trees.lanes.holders and not trees.lanes.lanes.by_name,
        "I19 something is left",
    )
    must(set(books.specs) == set(books.ended), "I1 not everybody who was started has ended")
    for key, times in books.received.items():
        if not (times >= 1):
            broken(f"I4 {key} was never received")
    for delivery in books.deliveries.values():
        if delivery.state not in ("acked", "suppressed", "dead"):
            broken(f"I4 delivery {delivery.key} is {delivery.state}")
        must(
            delivery.state != "acked" or books.received[delivery.key] >= 1,
            "I4 acked and never received",
        )
        tried = delivery.bounces >= sim.rules.delivery_tries
        must(delivery.state != "dead" or tried, "I4 given up before its time")
        must(
            delivery.text or delivery.state == "suppressed",
            f"I4 delivery {delivery.key} says nothing",
        )
    losses = {id for id in books.announced if digest(id, "completion") not in books.deliveries}
    if losses:
        broken(f"I4 never announced: {losses}")
    _known(sim)
    n_left = Counter(run for run, _ in books.left)
    for id, run in books.ended.items():
        if run.usage.turns > n_left[id]:
            broken(
                f"I10 {id} has paid for {run.usage.turns} model calls, and {n_left[id]} have left"
            )
    _summaries(books)
    _log(sim)
    _fold(sim)
    _caches(sim)


def _known(sim: Simulation) -> None:
    """I10: what is only a bound is told apart, in a run and in the account of each above it."""
    books, below = sim.books, dict[str, tuple[int, int]]()
    is_priced = not script.loses_price(sim.seed)
    for spec in sorted(books.specs.values(), key=lambda s: s.depth, reverse=True):
        usage = books.ended[spec.id].usage
        if is_priced and usage.estimated and not usage.nanos_estimated:
            broken(f"I10 {spec.id} does not say how much of its cost is a bound")
        own = below.get(spec.id, (0, 0))
        total = (own[0] + usage.estimated, own[1] + usage.nanos_estimated)
        account = books.accounts[spec.id]
        if account.guess[:2] != total:
            broken(f"I10 account {spec.id} knows of bounds of {account.guess}, its runs of {total}")
        above = below.get(spec.parent, (0, 0))
        below[spec.parent] = (above[0] + total[0], above[1] + total[1])


def _summaries(books: Books) -> None:
    """I4: a group that is to be summed up is, once, if its members announce and did not end with
    their parent."""
    groups: dict[tuple[str, str], list[RunSpec]] = {}
    for spec in books.specs.values():
        if spec.request.group_size and spec.origin.channel:
            groups.setdefault((spec.parent, spec.request.group), []).append(spec)
    summed = Counter((d.run, d.group) for d in books.deliveries.values() if d.group)
    killed = {
        key
        for key, specs in groups.items()
        if any(books.ended[s.id].state.ending.along for s in specs)
    }  # type: ignore[union-attr]
    if Counter({k: n for k, n in summed.items() if k not in killed}) != Counter(
        groups.keys() - killed
    ):
        broken(f"I4 groups {set(groups)} and summaries {summed}")


def _log(sim: Simulation) -> None:
    """I13: the log has no gap but where a run was deleted. I22: and it is gone."""
    books, purged = sim.books, sim.books.purged
    rows = now(sim.store.entries(0, "", 1_000_000))
    if [seq for seq, _ in rows] != [n for n in range(1, len(books.log) + 1) if n not in purged]:
        broken("I13 the log has a gap")
    trees: dict[str, list[int]] = {}
    for seq, entry in enumerate(books.log, 1):
        trees.setdefault(entry.tree, []).append(seq)
    for tree, seqs in trees.items():
        numbers = [n for n, seq in enumerate(seqs, 1) if seq not in purged]
        if [n for n, _ in now(sim.store.entries(0, "", 1_000_000, tree=tree))] != numbers:
            broken(f"I13 the log of tree {tree} has a gap")
    for id in books.deleted:
        if now(sim.store.row(id)) is not None:
            broken(f"I22 {id} was deleted and is still there")


def _fold(sim: Simulation) -> None:
    """I14: the fold of the log is the state that was stored. It takes every step once more, so
    every second schedule has to do."""
    if sim.seed % 2 == 0:
        return
    folded = Trees(sim.rules)
    for entry in sim.books.log:
        folded.fold(entry)
    final = folded.take_changes().runs
    for id, run in sim.books.ended.items():
        if final[id] != run:
            broken(f"I14 the fold of the log gives another end for {id}:\n{final[id]}\n{run}")


def _caches(sim: Simulation) -> None:
    """I29: what caches gave to a tree is what they gave to its runs."""
    books, figures = sim.books, dict[str, Cached]()
    for id, run in books.ended.items():
        root = books.specs[id].root
        figures[root] = figures.get(root, NO_CACHE).plus(run.cache)
    for root, cached in figures.items():
        account = now(sim.store.account(root))
        if account is not None and account.cache != cached:
            broken(f"I29 {root} is told of {account}, its runs of {cached}")
