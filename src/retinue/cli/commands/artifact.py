"""`retinue artifact`: the whole of what was cut somewhere."""

from __future__ import annotations

import os
import sys

import click

from retinue.cli.context import CommandContext, common, out, pass_door, put
from retinue.errors import NotFound
from retinue.host.stored_artifacts import read_artifact


@click.command("artifact")
@click.argument("id", metavar="ID")
@common
@pass_door
def command(door: CommandContext, id: str) -> None:
    """Print the artifact ID, which stands at every cut: `full text in artifact ID`. The first
    digits are enough, if no other begins with them. A pipe or a file gets exactly the bytes that
    were kept."""
    if not door.places.exists:
        raise NotFound(f"there are no runs in {door.places.root} yet, so there is no artifact")
    data = read_artifact(door.places, id.strip().removeprefix("artifact").strip().lower())
    if os.isatty(sys.stdout.fileno()):
        out(data.decode("utf-8", "replace"))
    else:
        put(data)
