"""`retinue compact`: returns the space of deleted runs to the disk."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import click
import msgspec

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, note, out, pass_context
from retinue.errors import NotFound
from retinue.host import requests
from retinue.host.client import connect_to_host
from retinue.host.compaction import Compacted, compact_store
from retinue.host.keys import carried

if TYPE_CHECKING:
    from retinue.host.client import HostClient


@click.command("compact")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@common
@pass_context
def command(context: CommandContext, as_json: bool) -> int:
    """Free the disk space of deleted runs, and delete artifacts that no run refers to. Open runs
    continue meanwhile. A store made by an older version must be rewritten once, which needs
    the host to be stopped."""
    if not context.paths.exists:
        raise NotFound(f"No runs in {context.paths.root} yet: nothing to compact.")
    client = connect_to_host(context.paths, carried(context.configure()))
    if client is None:
        result = asyncio.run(compact_store(context.paths, None if context.is_quiet else _show))
    else:
        with client:
            result = _by_host(client, context.is_quiet)
    if as_json:
        out(json.dumps({**msgspec.to_builtins(result), "freed": result.freed}))
        return exit_codes.OK
    before, after = (space.file + space.artifacts for space in (result.before, result.after))
    context.say(
        f"{_size(before)} before, {_size(after)} after: {_size(result.freed)} freed in "
        f"{result.seconds:.1f} s"
    )
    if result.is_old and result.after.holes:
        note(
            f"retinue: {_size(result.after.holes)} of free space remain: this store was "
            "made by an older version and must be rewritten while nothing runs. Run "
            "`retinue host stop`, then `retinue compact`."
        )
    return exit_codes.OK


def _by_host(client: HostClient, is_quiet: bool) -> Compacted:
    from retinue.host.problem_documents import error_of

    number = client.begin(requests.CompactRequest())
    while True:
        news = client.next_news()
        if news.id not in (number, 0):
            continue
        if news.error is not None:
            raise error_of(news.error)
        if news.progress is not None and not is_quiet:
            _show(news.progress.done, news.progress.total)
        if news.is_last:
            return msgspec.convert(news.done, Compacted)


def _show(n_done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if n_done >= total else ""
        click.echo(
            f"\r{n_done * 100 // max(1, total):3} % of {total} pages{end}", nl=False, err=True
        )


def _size(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if abs(n) < 1024:
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"
