"""Runs in the foreground: starts a run, shows it, and prints the answer."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from retinue import __version__
from retinue.cli.context import CommandContext, note, out
from retinue.cli.handover import RunDisplay, hand_over
from retinue.cli.terminal.terminal_style import detect_style
from retinue.cli.terminal.watched_run import Notice, Signals, WatchedRun, WatchLeft
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.host.client import HostClient
from retinue.host.keys import carried
from retinue.host.launch import reach
from retinue.host.planner import PlannedRun
from retinue.tree_record import TreeRecord
from retinue.view import format as view_format
from retinue.view.format import json_line
from retinue.view.stream_json import StreamHeader, StreamJsonWriter


@contextlib.contextmanager
def line_to(context: CommandContext, display: RunDisplay | None = None) -> Iterator[HostClient]:
    """A connection to the host of the project, or to one in this process."""
    env = carried(context.configure())
    if display is not None and display.is_memory:
        from retinue.host.in_process import InProcessHost

        approvals = Path(context.paths.approvals)
        with InProcessHost(
            env, context.paths.cwd, approvals if approvals.exists() else None
        ) as client:
            yield client
        return
    with reach(context.prepare(), env) as client:
        yield client


def start(
    context: CommandContext,
    client: HostClient,
    planned: PlannedRun,
    text: str,
    terms: requests.RunTerms,
    display: RunDisplay,
) -> str:
    """Start a run and say with what: its model, and the servers that are not as they should be.
    Returns its id."""
    try:
        reply = client.ask(
            requests.StartRequest(plan=planned.plan, task=text, terms=terms, env=planned.env)
        )
    except (KeyboardInterrupt, SystemExit):
        if not display.is_memory:
            note(
                "retinue: Stopped before the host responded. If a run was started, "
                "`retinue ps` lists it."
            )
        raise
    run: str = reply["run"]
    with in_sight(run, display):
        _introduce(context, client, planned, reply, display)
    return run


def _introduce(
    context: CommandContext,
    client: HostClient,
    planned: PlannedRun,
    reply: dict[str, Any],
    display: RunDisplay,
) -> None:
    plan, choice = planned.plan, planned.choice
    servers = (*planned.left_out, *reply["mcp"])
    display.head = StreamHeader(
        version=__version__,
        tools=tuple(reply["tools"]),
        agents=planned.agents,
        skills=tuple(skill.name for skill in plan.skills),
        mcp_servers=tuple({"name": s["name"], "status": s["status"]} for s in servers if s["name"]),
        mcp_server_errors=tuple(_server_error(s) for s in servers if s["error"]),
        mode=reply["mode"],
        deltas=display.deltas,
    )
    context.say(
        f"retinue {client.welcome.retinue} · {choice.model} ({choice.why}) · run "
        f"{view_format.short_id(reply['run'])} · mode {reply['mode']}"
        f"{page_of(client, reply['run'])}"
    )
    remarks = (*server_lines(reply["mcp"], planned.left_out), *reply["notes"])
    for line in (*choice.hints, *planned.notes, *remarks):
        context.say(line)


def page_of(client: HostClient, run: str) -> str:
    """Where a browser shows a run, while its host has a dashboard open."""
    page = client.welcome.page
    return f" · dashboard {page}/r/{run}" if page else ""


@contextlib.contextmanager
def in_sight(run: str, display: RunDisplay) -> Iterator[None]:
    """While a run is open: whatever happens to this command, its user learns which run it was."""
    try:
        yield
    except BrokenPipeError:
        raise  # no one reads the output
    except (Exception, KeyboardInterrupt, SystemExit):
        if not display.is_memory:
            id = view_format.short_id(run)
            note(
                f"retinue: Run {id} may still be running. Watch it with `retinue attach "
                f"{id}`, or stop it with `retinue cancel {id}`."
            )
        raise


def _server_error(server: dict[str, Any]) -> dict[str, str]:
    return {"name": server["name"], "status": server["status"], "error": server["error"]}


def server_lines(
    started: Iterable[dict[str, Any]], left_out: Iterable[dict[str, Any]]
) -> list[str]:
    """A line for each server that is not as it should be, with what to do about it."""
    lines = []
    for server in (*left_out, *started):
        name, source = (one_line(server[key], 300) for key in ("name", "source"))
        if server["status"] == "untrusted":
            continue  # shown together with everything else of the project
        if server["status"] == "changed":
            lines.append(
                f"MCP server {name} was not started: {one_line(server['error'], 300)}. "
                f"Run `retinue mcp approve {name}`."
            )
        elif server["status"] == "pending":
            lines.append(
                f"MCP server {name} is still starting; its tools are available from the next run on"
            )
        elif server["error"]:
            lines.append(
                f"MCP server {name or source} cannot be used: {one_line(server['error'], 300)}"
            )
        for tool in server["withheld"]:
            how = f" (retinue mcp approve {name} {tool['tool']})" if tool["offered"] else ""
            lines.append(f"MCP tool {name}/{tool['tool']} is withheld: {tool['reason']}{how}")
    return lines


def carry_out(
    context: CommandContext,
    client: HostClient,
    run: str,
    display: RunDisplay,
    *,
    is_ours: bool = True,
    after: int = 0,
) -> int:
    """Watch a run to its end and hand over what it came to; returns the exit code."""
    with in_sight(run, display), Signals() as signals:
        waits = display.can_answer or display.waits
        watching = WatchedRun(
            client, run, signals, is_ours=is_ours, deltas=display.deltas, after=after, waits=waits
        )
        try:
            writer = StreamJsonWriter(display.head)
            final = (
                _stream(watching, writer)
                if display.format == "stream-json"
                else _show(watching, context, display, writer)
            )
        except WatchLeft as departure:
            id = view_format.short_id(run)
            detached = (f"Detached. Run {id} continues: retinue attach {id}",)
            for line in departure.lines or detached:
                note(line)
            return departure.code
        except BrokenPipeError:
            client.ask(requests.CancelRequest(runs=(run,), reason="its output is no longer read"))
            raise
    return hand_over(context, final, display, writer, watching.code)


def _stream(watching: WatchedRun, writer: StreamJsonWriter) -> TreeRecord:
    """Everything as lines of JSON on stdout."""
    while True:
        thing = watching.next()
        if isinstance(thing, TreeRecord):
            return thing
        if isinstance(thing, Notice):
            note(f"retinue: {thing.text}")
        elif thing is not None:
            for line in writer.lines(thing):
                out(json_line(line))


def _show(
    watching: WatchedRun, context: CommandContext, display: RunDisplay, writer: StreamJsonWriter
) -> TreeRecord:
    """For people, on stderr: the live view where it can be drawn, otherwise a line for each
    change."""
    from retinue.cli.terminal import plain

    watching.listen = lambda item: all(writer.lines(item))
    how = detect_style(context.environ, sys.stderr, context.color)
    if display.is_headless or context.is_quiet or context.is_reader or not how.moves:
        return plain.watch(watching, context, can_answer=display.can_answer)
    from retinue.cli.terminal.answer_stream import watch_answer

    final, display.shown = watch_answer(
        watching, context, how, can_answer=display.can_answer, is_raw=display.is_raw
    )
    return final


def head_of(
    tools: tuple[str, ...], agents: tuple[str, ...], mode: str, *, deltas: bool = False
) -> StreamHeader:
    return StreamHeader(
        version=__version__, tools=tools, agents=agents, mode=mode or "manual", deltas=deltas
    )


def display_of(output_format: str) -> RunDisplay:
    """For a command that continues a conversation: questions are for the person at a terminal."""
    is_text = output_format == "text"
    return RunDisplay(
        format=output_format,
        is_headless=not is_text,
        can_answer=is_text and sys.stdin.isatty() and sys.stderr.isatty(),
        head=head_of((), (), ""),
    )
