"""`retinue top`: shows all runs on a full screen."""

from __future__ import annotations

import sys

import click

from retinue.cli.context import CommandContext, common, pass_context, theme_option
from retinue.cli.run_argument import run_argument
from retinue.cli.terminal.colors import Palette
from retinue.cli.terminal.keyboard import Keys
from retinue.cli.terminal.live import with_background
from retinue.cli.terminal.terminal_style import detect_style
from retinue.errors import ConfigError

MISSING = (
    "`retinue top` needs the extra `tui`. Install retinue[tui], or use `retinue ps "
    "--watch` or `retinue attach`."
)


@click.command("top")
@run_argument(default="")
@theme_option
@common
@pass_context
def command(context: CommandContext, run: str) -> None:
    """Watch all runs of this project on a full screen; with RUN, that run and its messages."""
    try:
        from retinue.cli.tui.top_app import TopApp
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "textual":
            raise ConfigError(MISSING) from None
        raise
    from retinue.cli.tui.project_runs import ProjectRuns
    from retinue.host.keys import carried
    from retinue.host.listing import RunListing

    opened = top = ""
    if run:
        with RunListing(context.paths) as listing:
            line = listing.resolve(run)
        opened, top = line.id, line.root
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(
            "`retinue top` needs a terminal. In a pipe, use `retinue ps --tree` or "
            "`retinue ps --json`."
        )
    board = ProjectRuns(context.paths, carried(context.environ), (top,) if top else ())
    with Keys() as keys:
        how = with_background(detect_style(context.environ, sys.stdout, context.color), keys)
    palette = Palette(how.theme, how.color)
    try:
        TopApp(board, opened, palette=palette, home=context.environ.get("HOME", "")).run()
    finally:
        board.close()
