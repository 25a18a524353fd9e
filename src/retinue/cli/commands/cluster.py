"""`retinue cluster`: shows the workers of a database, and what waits for one."""

from __future__ import annotations

import click
import msgspec

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, out, pass_context
from retinue.errors import ConfigError


@click.group("cluster")
def command() -> None:
    """Show and drain the workers of a database that several nodes share, and set budgets."""


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@common
@pass_context
def status(context: CommandContext, /, as_json: bool) -> int:
    """List the workers, the trees that each drives, and what waits."""
    from retinue.cluster.status import cluster_status
    from retinue.view.cluster_lines import status_lines

    now = cluster_status(_database(context))
    if as_json:
        out(msgspec.json.encode(now).decode())
        return exit_codes.OK
    for line in status_lines(now):
        out(line)
    return exit_codes.OK


@command.command("budget")
@click.argument("tenant", default="")
@click.option("--tokens", type=click.IntRange(0), default=None, help="Most tokens in all.")
@click.option("--usd", type=click.FloatRange(0), default=None, help="Most US dollars in all.")
@click.option("--remove", is_flag=True, help="Let TENANT spend without a limit.")
@common
@pass_context
def budget(
    context: CommandContext, /, tenant: str, tokens: int | None, usd: float | None, remove: bool
) -> int:
    """Show what TENANT, the user of runs, may spend on all nodes together, or set it. A limit that
    is not named is removed. Without TENANT all budgets are shown."""
    from retinue.cluster.tenant_budgets import remove_budget, set_budget, tenant_budgets

    database = _database(context)
    if not tenant and (remove or tokens is not None or usd is not None):
        raise ConfigError("Name the tenant whose budget is changed.")
    if remove:
        remove_budget(database, tenant)
    elif tokens is not None or usd is not None:
        set_budget(database, tenant, tokens, usd)
    for line in tenant_budgets(database):
        if tenant in ("", line.tenant):
            most_tokens = "no limit" if line.tokens is None else f"{line.tokens:,}"
            most_usd = "no limit" if line.usd is None else f"${line.usd:.2f}"
            spent = f"{line.spent_tokens:,} tokens (limit: {most_tokens})"
            out(f"{line.tenant}: {spent}, ${line.spent_usd:.4f} (limit: {most_usd})")
    return exit_codes.OK


@command.command("drain")
@click.argument("worker")
@common
@pass_context
def drain(context: CommandContext, /, worker: str) -> int:
    """Have WORKER, a name or an id, take no more runs and let go of those that it has."""
    from retinue.cluster.status import drain_worker

    drain_worker(_database(context), worker)
    context.say(f"{worker} takes no more runs.")
    return exit_codes.OK


def _database(context: CommandContext) -> str:
    database = context.prepare().database
    if not database:
        raise ConfigError("Name the database with --store postgresql://USER@HOST/DATABASE.")
    return database
