"""`retinue doctor`: checks everything that runs depend on, and says how to fix problems."""

from __future__ import annotations

import sys

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, note, option, out, pass_context
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
@common
@pass_context
def command(
    context: CommandContext, as_json: bool, offline: bool, fix: bool, recover: str, color: str
) -> int:
    """Check models, sandbox, store and versions. Exits with code 1 if something is broken."""
    from retinue.cli.doctor import store_checks
    from retinue.cli.doctor.finding import examine, line

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
    worst, findings = exit_codes.OK, []
    for finding in examine(context, offline=offline):
        findings.append(finding)
        if finding.state == "broken":
            worst = exit_codes.FAILED
        if not as_json:
            is_colored = colors(context, color)
            out(line(finding, color=is_colored, plain=is_plain), styled=is_colored)
    if as_json:
        rows = [{"name": f.name, "state": f.state, "text": f.text, "fix": f.fix} for f in findings]
        out(json_line({"ok": worst == exit_codes.OK, "checks": rows}))
        return worst
    count = {
        state: sum(f.state == state for f in findings) for state in ("ok", "degraded", "broken")
    }
    out(", ".join(f"{n} {state}" for state, n in count.items() if n or state == "broken"))
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
