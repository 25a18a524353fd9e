"""`retinue resume`: continues a run."""

from __future__ import annotations

import click

from retinue.cli import exit_codes
from retinue.cli.command_help import Flag
from retinue.cli.context import CommandContext, common, out, pass_context
from retinue.cli.foreground_run import carry_out, display_of, line_to
from retinue.cli.run_argument import run_argument
from retinue.core.values import Budget
from retinue.errors import Refused
from retinue.host import requests
from retinue.host.client import HostClient
from retinue.host.listing import ListedRun, RunListing
from retinue.host.record import RecordReader
from retinue.view import format as view_format
from retinue.view import totals


@click.command("resume")
@run_argument(default="latest")
@click.argument("instruction", nargs=-1)
@click.option(
    "--from-failed",
    is_flag=True,
    help="Retry the sub-agents that failed, then continue with their results.",
)
@click.option(
    "--background",
    cls=Flag,
    compat=("--bg",),
    is_flag=True,
    help="Run in the background and print the run's id.",
)
@click.option(
    "--max-budget-usd",
    type=float,
    metavar="USD",
    help="Maximum cost from here on, for a run that has ended.",
)
@click.option("--output-format", type=click.Choice(["text", "json", "stream-json"]), default="text")
@click.option("-q", "--quiet", is_flag=True)
@common
@pass_context
def command(
    context: CommandContext,
    run: str,
    instruction: tuple[str, ...],
    from_failed: bool,
    background: bool,
    max_budget_usd: float | None,
    output_format: str,
    quiet: bool,
) -> int:
    """Continue a run: one that was interrupted picks up where it stopped; one that has ended
    gets a new turn."""
    context.is_quiet = quiet
    with RunListing(context.paths) as listing:
        line = listing.resolve(run)
    text = " ".join(instruction)
    is_open = line.state not in view_format.ENDS
    if is_open and max_budget_usd is not None:
        raise click.UsageError(f"{line.short} is still open. Use `retinue budget {line.short}`.")
    display = display_of(output_format)
    with line_to(context) as client:
        if from_failed and not is_open:
            text = _retry(context, client, line, text)
        if is_open and text:
            client.ask(requests.SendRequest(run=line.id, text=text))
        terms = requests.RunTerms(
            questions="ask" if display.can_answer else "", budget=Budget(usd=max_budget_usd)
        )
        id = client.ask(requests.ResumeRequest(run=line.id, task=text, terms=terms))["run"]
        turn = f" at turn {line.turn}" if line.turn else ""
        how = (
            f"resumed{turn}; nothing was lost" if id == line.id else f"continues from {line.short}"
        )
        context.say(f"Run {view_format.short_id(id)} {how}.")
        if background:
            out(view_format.short_id(id))
            return exit_codes.OK
        return carry_out(context, client, id, display)


def _retry(context: CommandContext, client: HostClient, line: ListedRun, text: str) -> str:
    """Continue the failed sub-agents, and format what they report for their parent."""
    with RecordReader(context.paths) as record:
        failed = [
            r
            for r in record.tree(line.id).rows[1:]
            if totals.word(r) in view_format.FAILURES and r.spec.parent == line.id
        ]
    if not failed:
        raise Refused("failed", f"No sub-agent of {line.short} failed. Remove --from-failed.")
    labels = {
        r.spec.id: view_format.agent_label(r.spec.request.label or r.spec.request.agent)
        for r in failed
    }
    again = {
        id: client.ask(requests.ResumeRequest(run=id, task="Your last attempt failed. Try again."))[
            "run"
        ]
        for id in labels
    }
    for id, label in labels.items():
        context.say(f"Retrying {label} as {view_format.short_id(again[id])}.")
    client.ask(requests.WaitRequest(runs=tuple(again.values())))
    reports = []
    with RecordReader(context.paths) as record:
        for id, label in labels.items():
            row = record.row(again[id])
            end = totals.ending(row) if row is not None else None
            result = "It did not end." if end is None else end.text or end.error
            reports.append(f"{label} ({end.state if end is not None else 'open'}): {result}")
    head = "These sub-agents had failed and were retried. Their reports:\n\n"
    return head + "\n\n".join(reports) + f"\n\n{text or 'Finish the task with these reports.'}"
