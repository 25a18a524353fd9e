"""`retinue artifact`: the whole of what was cut somewhere."""

from __future__ import annotations

import os
import sys

import click

from retinue.cli.context import Door, common, out, pass_door, put
from retinue.errors import NotFound
from retinue.formats.safe_text import one_line
from retinue.store.artifact_files import Artifacts

LEAST = 6


@click.command("artifact")
@click.argument("id", metavar="ID")
@common
@pass_door
def command(door: Door, id: str) -> None:
    """Print the artifact ID, which stands at every cut: `the whole is in artifact ID`. The first digits are enough, if
    no other begins with them. A pipe or a file gets exactly the bytes that were kept."""
    if not door.places.exists:
        raise NotFound(f"there are no runs in {door.places.root} yet, so there is no artifact")
    shelf = Artifacts(f"{door.places.store}.artifacts")
    data = shelf.get(_found(shelf, id.strip().removeprefix("artifact").strip().lower()), 0, None)
    if os.isatty(sys.stdout.fileno()):
        out(data.decode("utf-8", "replace"))
    else:
        put(data)


def _found(shelf: Artifacts, id: str) -> str:
    digits = set("0123456789abcdef")
    if not LEAST <= len(id) <= 64 or set(id) - digits:
        shown = one_line(id, 80)
        raise NotFound(f"{shown!r} is not the id of an artifact: that is 64 hexadecimal digits, or at least {LEAST}")
    found = [name for name in shelf.names() if name.startswith(id)]
    if len(found) > 1:
        some = ", ".join(name[: len(id) + 4] for name in found[:5])
        raise NotFound(f"{id!r} can mean {len(found)} artifacts ({some}): write more of it")
    if not found:
        raise NotFound(
            f"there is no artifact {id} in this store. What no run names any more is deleted with the last that did; "
            "another store is named with --store"
        )
    return found[0]
