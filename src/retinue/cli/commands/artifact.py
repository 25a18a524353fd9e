"""`retinue artifact`: prints the full text of something that was shortened."""

from __future__ import annotations

import os
import sys

import click

from retinue.cli.context import CommandContext, common, out, pass_context, put
from retinue.errors import NotFound
from retinue.host.stored_artifacts import read_artifact


@click.command("artifact")
@click.argument("id", metavar="ID")
@common
@pass_context
def command(context: CommandContext, id: str) -> None:
    """Print the artifact with this ID. A truncated text names its artifact: `full text in
    artifact ID`. The first digits are enough if they match one artifact only. A pipe or a
    file gets exactly the stored bytes."""
    if not context.paths.exists:
        raise NotFound(f"No runs in {context.paths.root} yet, so there are no artifacts.")
    data = read_artifact(context.paths, id.strip().removeprefix("artifact").strip().lower())
    if os.isatty(sys.stdout.fileno()):
        out(data.decode("utf-8", "replace"))
    else:
        put(data)
