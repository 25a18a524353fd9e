"""`retinue export`: writes a run as Markdown, JSON Lines, a trace, or a page."""

from __future__ import annotations

import os
import time

import click

from retinue.cli.context import CommandContext, common, out, pass_context
from retinue.cli.run_argument import run_argument
from retinue.host import answer_file
from retinue.host.listing import RunListing
from retinue.host.record import RecordReader

FORMATS = ("md", "jsonl", "stream-json", "perfetto", "otlp", "html")


@click.command("export")
@run_argument(default="latest")
@click.option("--format", "form", type=click.Choice(FORMATS), default="md", show_default=True)
@click.option("--content", is_flag=True, help="otlp: with prompts, replies and tool results.")
@click.option("-o", "--output", default="", metavar="FILE", help="Write to FILE instead of stdout.")
@common
@pass_context
def command(context: CommandContext, run: str, form: str, content: bool, output: str) -> None:
    """Export a run and its sub-agents: md to read, jsonl to process, perfetto to see timings,
    otlp for trace backends, html to share."""
    from retinue.view import export_formats

    if content and form != "otlp":
        raise click.UsageError(f"--content is for --format otlp; {form} needs no such option.")
    folder = os.path.dirname(os.path.expanduser(output))
    if folder and not os.path.isdir(folder):
        raise click.UsageError(f"The folder {folder} does not exist. Create it, or name another.")
    with RunListing(context.paths) as listing:
        id = listing.resolve(run).id
    with RecordReader(context.paths) as record:
        tree = record.tree(id)
        day = time.strftime("%Y-%m-%d", time.localtime(tree.rows[0].spec.created_at / 1000))
        source = export_formats.ExportSource(record, tree, day, content)
        text = export_formats.FORMATS[form](source)
    if output:
        answer_file.write(answer_file.settled(output, os.getcwd()), text)
        context.say(f"Written to {output}")
    else:
        out(text.rstrip("\n"))
