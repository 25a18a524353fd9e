"""`retinue worker`: drive runs of a database that several nodes share."""

from __future__ import annotations

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, dispatch_option, note, pass_context


@click.command("worker")
@dispatch_option
@common
@pass_context
def command(context: CommandContext, /) -> int:
    """Drive runs of the database that --store names, until Ctrl-C. Any number of workers, and of
    `retinue serve --shared`, can use one database.

    On Ctrl-C or SIGTERM no more runs are taken; calls that are under way may end, and then other
    workers continue.
    """
    from retinue.host.keys import carried
    from retinue.host.worker_process import work

    env = carried(context.configure())
    work(context.prepare(), env, note)
    return exit_codes.OK
