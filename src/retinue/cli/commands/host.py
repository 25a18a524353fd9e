"""`retinue host`: stops the background host, or shows its state and log. Open runs of a stopped
host continue when the next command needs them."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import click

from retinue import errors
from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, note, out, pass_context
from retinue.host import project_paths, requests
from retinue.host.client import connect_to_host
from retinue.host.health import is_held
from retinue.view.format import json_line

WAIT_SECONDS = 15.0


@click.group("host")
def command() -> None:
    """Stop, check or read the log of the background host."""


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@common
@pass_context
def status(context: CommandContext, as_json: bool) -> int:
    """Say whether the host of this project is running. Exits with code 1 if it is not."""
    client = connect_to_host(context.paths, {})
    if client is None:
        out(json_line({"running": False}) if as_json else "No host is running.")
        return exit_codes.FAILED
    with client:
        answer = client.ask(requests.StatusRequest())
    if as_json:
        out(json_line({"running": True, **answer}))
    else:
        out(
            f"Host {answer['pid']} is running, {answer['open']} open runs. Log: {context.paths.log}"
        )
    return exit_codes.OK


@command.command("log")
@common
@pass_context
def log(context: CommandContext) -> int:
    """Print the log of the host."""
    try:
        with open(context.paths.log, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except FileNotFoundError:
        context.say("The host has no log yet.")
        return exit_codes.OK
    out(text.rstrip("\n"))
    return exit_codes.OK


@command.command("stop")
@click.option("--all-projects", is_flag=True, help="Stop the hosts of all projects.")
@common
@pass_context
def stop(context: CommandContext, all_projects: bool) -> int:
    """Stop the background host of this project. Open runs are kept; `retinue resume` continues
    them."""
    targets = [context.paths]
    if all_projects:
        targets = [
            project_paths.find(context.environ, cwd=os.path.dirname(f), store=f)
            for f in project_paths.every_store(context.environ)
        ]
        targets = [_own(context, t) for t in targets]
    n = 0
    for target in targets:
        try:
            client = connect_to_host(target, {})
            if client is None:
                continue
            with client:
                client.hurry(WAIT_SECONDS)
                status = client.ask(requests.StatusRequest())
                client.ask(requests.StopRequest())
            pid, n_open = status["pid"], status["open"]
        except errors.HostSilent as error:
            _end(error.pid, signal.SIGKILL)
            note(
                f"retinue: Host {error.pid} did not respond and was killed. Recorded work is safe."
            )
            pid, n_open = error.pid, 0
        except errors.HostOutdated as error:
            _end(error.pid, signal.SIGTERM)
            pid, n_open = error.pid, 0
        if not _has_stopped(target):
            note(f"retinue: Host {pid} is still shutting down. Its runs are recorded.")
            return exit_codes.FAILED
        n += 1
        note(f"Stopped host {pid}" + (f"; {n_open} runs stay open" if n_open else ""))
    if not n:
        context.say("No host is running.")
    return exit_codes.OK


def _end(pid: int, number: signal.Signals) -> None:
    """By its process id, which the system reports for the other end of the socket; its child
    processes end with it."""
    if pid > 1 and pid != os.getpid():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _own(context: CommandContext, target: project_paths.ProjectPaths) -> project_paths.ProjectPaths:
    """A project's store has its socket under the project's name, not under that of the file."""
    name = os.path.basename(os.path.dirname(target.store))
    return project_paths.of_project(context.environ, target, name)


def _has_stopped(target: project_paths.ProjectPaths) -> bool:
    until = time.monotonic() + WAIT_SECONDS
    while is_held(target):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
