"""`retinue deliveries`: lists announcements, and those that failed."""

from __future__ import annotations

import click
import msgspec

from retinue.cli.context import CommandContext, common, note, out, pass_context
from retinue.cli.foreground_run import line_to
from retinue.core.values import Delivery
from retinue.errors import NotFound
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.host.record import RecordReader
from retinue.view.format import json_line


@click.group("deliveries", invoke_without_command=True)
@click.pass_context
def command(click_context: click.Context) -> None:
    """List announcements; retry or drop failed ones."""
    if click_context.invoked_subcommand is None:
        click_context.invoke(list_)


@command.command("list")
@click.option(
    "--state",
    default="",
    metavar="STATES",
    help="Only this state: pending, sent, acked, suppressed or dead.",
)
@click.option("--json", "as_json", is_flag=True)
@common
@pass_context
def list_(context: CommandContext, state: str, as_json: bool) -> None:
    """List announcements and their states."""
    deliveries = _all(context, [s.strip() for s in state.split(",") if s.strip()])
    if as_json:
        out(json_line(msgspec.to_builtins(deliveries)))
        return
    for d in deliveries:
        tries = f"{d.attempts} tries" if d.attempts != 1 else "1 try"
        where = d.origin.channel or "-"
        out(
            f"{d.key[:12]}  {d.state:<10}  {where:<10}  {tries:<9}  "
            f"{one_line(d.error or d.text, 80)}"
        )
    if not deliveries:
        context.say("No announcements.")


@command.command("retry")
@click.argument("keys", nargs=-1)
@click.option("--dead", is_flag=True, help="Retry all dead announcements.")
@common
@pass_context
def retry(context: CommandContext, keys: tuple[str, ...], dead: bool) -> None:
    """Send dead announcements again."""
    _change(context, keys, dead, drop=False)


@command.command("drop")
@click.argument("keys", nargs=-1)
@click.option("--dead", is_flag=True, help="Drop all dead announcements.")
@common
@pass_context
def drop(context: CommandContext, keys: tuple[str, ...], dead: bool) -> None:
    """Give up on announcements."""
    _change(context, keys, dead, drop=True)


def _all(context: CommandContext, states: list[str]) -> list[Delivery]:
    if not context.paths.exists:
        return []
    with RecordReader(context.paths) as record:
        return record.deliveries(states)


def _change(context: CommandContext, keys: tuple[str, ...], dead: bool, *, drop: bool) -> None:
    if bool(keys) == dead:
        raise click.UsageError("Name the announcements by their keys, or pass --dead.")
    everything = _all(context, [])
    choice = (
        [d.key for d in everything if d.state == "dead"]
        if dead
        else [_one(key, everything) for key in keys]
    )
    if not choice:
        note("No announcement is dead.")
        return
    with line_to(context) as client:
        for key in choice:
            client.ask(requests.RedeliverRequest(key=key, drop=drop))
            note(f"{'dropped' if drop else 'sent again'}: {key[:12]}")


def _one(key: str, everything: list[Delivery]) -> str:
    matches = [d.key for d in everything if d.key.startswith(key)]
    if len(matches) != 1:
        many = (
            f"{key!r} matches {len(matches)} announcements"
            if matches
            else (f"No announcement has the key {key!r}")
        )
        raise NotFound(f"{many}. Run `retinue deliveries` to list them.")
    return matches[0]
