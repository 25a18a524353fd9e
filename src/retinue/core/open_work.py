"""The open work of a tree: runs that have not ended, and announcements not yet made."""

from __future__ import annotations

from retinue.core.state import Run, Waiting
from retinue.core.tree import Tree


def at_work(tree: Tree) -> list[str]:
    """The live runs of a tree, without those that only live for messages and have none."""
    return [id for id, run in tree.runs.items() if not _is_idle_host(tree, run)]


def is_announcing(tree: Tree) -> bool:
    """Whether something of it is on its way to a channel."""
    return any(d.state in ("pending", "sent") for d in tree.deliveries.values())


def _is_idle_host(tree: Tree, run: Run) -> bool:
    is_idle = (
        isinstance(run.state, Waiting) and run.state.calls is None and not tree.has_mail(run.id)
    )
    return is_idle and tree.specs[run.id].request.stay_open and not tree.n_live(run.id)
