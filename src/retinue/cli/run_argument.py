"""Arguments that name a run, with shell completion that shows each run's task."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from retinue.formats.safe_text import one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def run_argument(name: str = "run", **settings: Any) -> Callable[[Any], Any]:
    """An argument that names a run."""
    return click.argument(name, shell_complete=runs, **settings)


def runs(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Ids of runs, newest first, with their state and task."""
    from click.shell_completion import CompletionItem

    from retinue.host import project_paths
    from retinue.host.listing import RunListing
    from retinue.view import format as view_format

    try:
        with RunListing(
            project_paths.find(os.environ, store=os.environ.get("RETINUE_STORE", ""))
        ) as listing:
            lines = listing.roots(limit=100)
    except Exception:  # completion must never print an error
        return []
    return [
        CompletionItem(
            line.short, help=f"{view_format.state_text(line.state)}: {one_line(line.task, 60)}"
        )
        for line in lines
        if line.short.startswith(incomplete)
    ]
