"""`retinue completion`: prints the script with which a shell completes commands, options
and runs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from retinue.cli.context import CommandContext, out, pass_context

POWERSHELL = """Register-ArgumentCompleter -Native -CommandName retinue -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = $commandAst.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_" }
    retinue completion --complete "$wordToComplete" -- $words | ForEach-Object {
        $value, $help = $_ -split "`t", 2
        if (-not $help) { $help = $value }
        [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', \
$help)
    }
}
"""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "powershell"]), required=False)
@click.option("--complete", default=None, hidden=True)
@click.argument("typed", nargs=-1, type=click.UNPROCESSED)
@pass_context
def command(
    context: CommandContext, shell: str | None, complete: str | None, typed: tuple[str, ...]
) -> None:
    """Print a shell completion script for bash, zsh, fish or powershell.

    For bash: eval "$(retinue completion bash)"
    """
    from retinue.cli.command_list import cli

    if complete is not None:
        _complete(context, [shell, *typed] if shell else list(typed), complete)
        return
    if shell is None:
        raise click.UsageError("Name a shell: bash, zsh, fish or powershell.")
    if shell == "powershell":
        out(POWERSHELL.rstrip("\n"))
        return
    completion = get_completion_class(shell)
    assert completion is not None
    out(completion(cli, {}, "retinue", "_RETINUE_COMPLETE").source().rstrip("\n"))


def _complete(context: CommandContext, typed: list[str], incomplete: str) -> None:
    from click.shell_completion import ShellComplete

    from retinue.cli.command_list import cli

    typed = typed[:-1] if typed and typed[-1] == incomplete else typed
    for item in ShellComplete(cli, {}, "retinue", "_RETINUE_COMPLETE").get_completions(
        typed, incomplete
    ):
        out(f"{item.value}\t{item.help or ''}")
