"""`retinue worker`: works on runs of a database that several nodes share."""

from __future__ import annotations

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, dispatch_option, note, option, pass_context


@click.command("worker")
@option(
    "--offers",
    multiple=True,
    metavar="LABEL",
    help="Something this machine has, such as gpu, for runs that need it. Repeatable.",
)
@dispatch_option
@common
@pass_context
def command(context: CommandContext, /, offers: tuple[str, ...]) -> int:
    """Drive runs of the database that --store names, until Ctrl-C. Any number of workers, and of
    `retinue serve --shared`, can use one database.

    A run that needs a label or a directory (`needs` in its options) is driven only by a worker that
    offers the label and has the directory; until then it waits.

    On Ctrl-C or SIGTERM no more runs are taken; calls that are under way may end, and then other
    workers continue.
    """
    from retinue.host.keys import carried
    from retinue.host.worker_process import work

    env = carried(context.configure())
    work(context.prepare(), env, note, offers)
    return exit_codes.OK
