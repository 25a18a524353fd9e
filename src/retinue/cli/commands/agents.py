"""`retinue agents`: lists, shows and checks definitions found on disk."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, out, pass_context
from retinue.host.project_agents import library
from retinue.view.format import json_line


@click.group("agents", invoke_without_command=True)
@click.pass_context
def command(click_context: click.Context) -> Any:
    """List, show and check agent definitions."""
    return click_context.invoke(list_) if click_context.invoked_subcommand is None else None


@command.command("list")
@click.option("--json", "as_json", is_flag=True)
@common
@pass_context
def list_(context: CommandContext, as_json: bool = False) -> None:
    """List the agents you can use here, with their files. Shadowed ones are marked."""
    from retinue.view.agent_list import render_list

    agents = library(context.project)
    if as_json:
        out(json_line([msgspec.to_builtins(spec) for spec in agents.agents.values()]))
        return
    out("\n".join(render_list(agents, cwd=context.paths.cwd)))


@command.command("show")
@click.argument("name")
@common
@pass_context
def show(context: CommandContext, name: str) -> None:
    """Show one agent as Retinue reads its file."""
    from retinue.view.agent_list import render_show

    out("\n".join(render_show(library(context.project), name, cwd=context.paths.cwd)))


@command.command("lint")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning"]),
    default="error",
    show_default=True,
    help="Exit with code 1 if there is a problem this severe.",
)
@common
@pass_context
def lint(context: CommandContext, fail_on: str) -> int:
    """Check all agent definitions. Exits with code 1 if one cannot be used."""
    from retinue.agent_files.lint import lint as lint_library
    from retinue.view.agent_list import render_lint

    complaints = lint_library(library(context.project))
    if text := "\n".join(render_lint(complaints, cwd=context.paths.cwd)):
        out(text)
    worst = {c.severity for c in complaints}
    return exit_codes.FAILED if "error" in worst or fail_on in worst else exit_codes.OK
