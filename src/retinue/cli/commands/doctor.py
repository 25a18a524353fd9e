"""`retinue doctor`: checks everything that runs depend on, and says how to fix problems."""

from __future__ import annotations

import sys

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, note, option, out, pass_context
from retinue.cli.terminal.terminal_style import size
from retinue.errors import ConfigError
from retinue.view.ascii_marks import Charset
from retinue.view.format import json_line


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--offline", is_flag=True, help="Skip checks that use the network.")
@click.option("--fix", is_flag=True, help="Make Retinue's files private to you, then check again.")
@click.option(
    "--recover", default="", metavar="OUT", help="Save what can be read of a damaged store to FILE."
)
@option("--color", type=click.Choice(["auto", "always", "never"]), default="auto")
@click.option("-v", "--verbose", is_flag=True, help="Show what is in order line by line, too.")
@common
@pass_context
def command(
    context: CommandContext,
    as_json: bool,
    offline: bool,
    fix: bool,
    recover: str,
    color: str,
    verbose: bool,
) -> int:
    """Check models, sandbox, store and versions. Exits with code 1 if something is broken."""
    from retinue.cli.doctor import store_checks
    from retinue.cli.doctor.finding import Look, examine, report

    if recover:
        raise ConfigError(
            f"This version cannot recover damaged stores. {recover} was not created, and "
            f"{context.paths.store} was not changed. Use a backup: `retinue --store BACKUP "
            "ps`."
        )
    if fix:
        for text in store_checks.tighten(context):
            note(text)
    encoding = (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "")
    is_plain = Charset.is_ascii or not encoding.startswith("utf8")
    findings = list(examine(context, offline=offline))
    is_broken = any(f.state == "broken" for f in findings)
    worst = exit_codes.FAILED if is_broken else exit_codes.OK
    if as_json:
        rows = [{"name": f.name, "state": f.state, "text": f.text, "fix": f.fix} for f in findings]
        out(json_line({"ok": not is_broken, "checks": rows}))
        return worst
    width = size(sys.stdout)[0] if sys.stdout.isatty() else 0
    look = Look(colors(context, color), is_plain, width)
    for text in report(findings, look, verbose=verbose):
        out(text, styled=look.is_colored)
    return worst


def colors(context: CommandContext, choice: str) -> bool:
    """Whether to colour: what was asked for, then NO_COLOR, then CLICOLOR_FORCE or FORCE_COLOR,
    then the terminal."""
    env = context.environ
    if choice != "auto":
        return choice == "always"
    if env.get("NO_COLOR") or env.get("TERM") == "dumb":
        return False
    if any(env.get(name, "0") not in ("", "0") for name in ("CLICOLOR_FORCE", "FORCE_COLOR")):
        return True
    return sys.stdout.isatty()
