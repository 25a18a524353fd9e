"""`retinue backup`: writes a consistent copy of the store."""

from __future__ import annotations

import os

import click

from retinue.cli.context import CommandContext, common, pass_context
from retinue.cli.foreground_run import line_to
from retinue.config.user_folders import note_file
from retinue.errors import NotFound
from retinue.host import requests


@click.command("backup")
@click.argument("file", type=click.Path(dir_okay=False))
@common
@pass_context
def command(context: CommandContext, file: str) -> None:
    """Copy the store to FILE, even while it is in use. Its artifacts are copied next to it.
    Never overwrites a file."""
    if not context.paths.exists:
        raise NotFound(f"No runs in {context.paths.root} yet: nothing to copy.")
    with line_to(context) as client:
        client.ask(requests.BackupRequest(path=os.path.abspath(file)))
    note_file(
        context.environ, os.path.realpath(file)
    )  # what runs have said is in it, wherever it lies
    context.say(f"Copied to {file}. Use the copy with --store {file}.")
