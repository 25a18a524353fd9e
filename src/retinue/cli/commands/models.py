"""`retinue models`: lists providers that can be used, and downloads weights for local models."""

from __future__ import annotations

import importlib.util
from typing import Any

import click

from retinue.cli.context import CommandContext, note, out, pass_context
from retinue.host import model_choice
from retinue.view.format import json_line

WIDTH = 40
"""Of a model's address in the list, so that a line fits 80 columns."""


@click.group("models", invoke_without_command=True)
@click.pass_context
def command(click_context: click.Context) -> Any:
    """List model providers; download a small local model."""
    return click_context.invoke(list_) if click_context.invoked_subcommand is None else None


@command.command("list")
@click.option("--json", "as_json", is_flag=True)
@pass_context
def list_(context: CommandContext, as_json: bool = False) -> None:
    """List the providers, whether their API key is set, and their default models."""
    from retinue.current_models import defaults
    from retinue.host.project_config import load
    from retinue.models.providers import PROVIDERS

    load(context.project, strict=False)
    rows = []
    for p in PROVIDERS.values():
        is_set = next((key for key in p.keys if context.environ.get(key, "").strip()), "")
        state = f"needs {p.keys[0]}" if p.keys else "needs no key"
        if is_set:
            state = f"{is_set} is set"
        default = defaults().get(p.name, "")
        if as_json:
            is_ready = bool(is_set) or not p.keys
            rows.append({"provider": p.name, "ready": is_ready, "keys": p.keys, "default": default})
        else:
            out(f"{p.name}:{default or 'MODEL'}".ljust(WIDTH) + state)
    if as_json:
        out(json_line(rows))
    else:
        out(f"{model_choice.OFFLINE:<{WIDTH}}needs no key")
        is_there = importlib.util.find_spec("xllamacpp") is not None
        state = "needs no key" if is_there else "needs the extra local"
        out(f"{'local/smollm2, local/PATH.gguf':<{WIDTH}}{state}")


@command.command("pull")
@click.argument("name")
@pass_context
def pull(context: CommandContext, name: str) -> None:
    """Download a small local model and check it against its known hash."""
    from retinue.models import known_weights, local_weights

    path = local_weights.pull(name, known_weights.default_cache(context.environ), tell=note)
    out(str(path))
