"""`retinue acp`: an agent for editors, over stdin and stdout."""

from __future__ import annotations

from typing import Any

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, option, pass_context
from retinue.errors import ConfigError


@click.command("acp")
@option("-m", "--model", default="", envvar=None, help="Model of new sessions.")
@option("--agent", default="", metavar="NAME", help="Agent of new sessions.")
@option(
    "--family",
    multiple=True,
    metavar="NAME",
    help="Tool family for starting sub-agents; `none` for no sub-agents. Repeatable.",
)
@option("--permission-mode", default="", metavar="MODE", help="Permission mode of new sessions.")
@option("--max-budget-usd", type=float, metavar="USD", help="Maximum cost of each prompt.")
@common
@pass_context
def command(context: CommandContext, /, **flags: Any) -> int:
    """Work in an editor that speaks the Agent Client Protocol: Zed, JetBrains, Neovim.

    The editor starts this itself: name `retinue acp` in its settings. A session is a conversation
    in the project's store and continues when the editor is closed."""
    import asyncio

    try:
        from acp import run_agent
    except ImportError as error:
        if error.name != "acp":
            raise
        raise ConfigError(
            "`retinue acp` needs the package agent-client-protocol. Install retinue[acp]."
        ) from None
    from retinue.acp.editor_agent import EditorAgent
    from retinue.acp.editor_pipes import editor_pipes
    from retinue.acp.session_opener import SessionOpener
    from retinue.host.run_setup import family_names, permission_mode

    permission_mode(flags["permission_mode"])
    family_names(flags["family"])

    async def main() -> None:
        agent = EditorAgent(SessionOpener(dict(context.environ), flags, context.store))
        await run_agent(agent, await editor_pipes(), use_unstable_protocol=True)

    asyncio.run(main())
    return exit_codes.OK
