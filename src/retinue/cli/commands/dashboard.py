"""`retinue dashboard`: opens the dashboard in a browser."""

from __future__ import annotations

import click

from retinue.cli import exit_codes
from retinue.cli.browser_window import opened_in_browser
from retinue.cli.context import CommandContext, common, note, out, pass_context
from retinue.cli.run_argument import run_argument
from retinue.host import requests
from retinue.host.keys import carried
from retinue.host.launch import reach
from retinue.host.listing import RunListing


@click.command("dashboard")
@run_argument(required=False, default="")
@click.option("--no-open", is_flag=True, help="Print the address and open nothing.")
@common
@pass_context
def command(context: CommandContext, run: str, no_open: bool) -> int:
    """Open the dashboard of this project in a browser; with RUN, the page of that run.

    The address lets one browser in, once, within five minutes. It is on this machine only; the
    host stays for as long as a page is open.
    """
    env = carried(context.configure())
    paths = context.prepare()
    path = ""
    if run:
        with RunListing(paths) as listing:
            path = f"r/{listing.resolve(run).id}"
    with reach(paths, env) as client:
        page = client.ask(requests.PageRequest(is_for_own_user=not no_open))
    address = f"{page['address']}/{path}?code={page['code']}"
    if no_open:
        out(address)
        return exit_codes.OK
    note(f"Dashboard: {address}")
    if not opened_in_browser(address):
        note("No browser was found here. Open the address in one on this machine.")
    return exit_codes.OK
