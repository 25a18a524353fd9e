"""`retinue fake-llm`: the scripted provider of `retinue.testing`, as a program."""

from __future__ import annotations

import importlib

import click


@click.command("fake-llm", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Serve a scripted model locally, for tests: `--port N --latency MS --chunks N --script
    FILE.jsonl`."""
    # By its name: nothing that is installed imports `retinue.testing`, unless this command is used.
    served: int = importlib.import_module("retinue.testing.fake_llm.fake_program").main(
        list(arguments)
    )
    return served
