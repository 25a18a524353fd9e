"""The arguments of `retinue run` as values: the prompt and all options."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import click

from retinue.cli.context import CommandContext
from retinue.config.schema import Configuration
from retinue.errors import ConfigError
from retinue.formats.safe_text import clean
from retinue.host import project_config, run_defaults
from retinue.host.run_setup import RunSetup, family_names, permission_rules


def configured(
    context: CommandContext, flags: dict[str, Any], *, keep: Collection[str] = ()
) -> tuple[RunSetup, Configuration]:
    """What is asked of a run: by flags, and by the configuration where they say nothing, which is
    filled into `flags`. Raises `ConfigError` with everything that is wrong with the
    configuration."""
    click_context = click.get_current_context()
    flags_given = {
        name: click_context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        for name in flags
        if click_context.get_parameter_source(name) is not None
    }
    settings = project_config.load(context.project)
    flags |= {
        name: value
        for name, value in run_defaults.defaults(settings, flags_given, keep=keep).items()
        if name in flags
    }
    folders = run_defaults.joined(
        settings, flags_given, "add_dir", [os.path.abspath(d) for d in flags["add_dir"]]
    )
    root = context.paths.root
    allowed = permission_rules("allow", flags.get("allowed_tools", ()))
    setup = RunSetup(
        agent=flags["agent"],
        agent_file=flags.get("agent_file", ""),
        model=flags["model"] or "",
        config_model=run_defaults.default_model(settings),
        families=family_names(flags["family"]),
        output_schema=schema(flags.get("output_schema", "")),
        mcp_config=run_defaults.joined(settings, flags_given, "mcp_config", flags["mcp_config"]),
        strict_mcp_config=flags["strict_mcp_config"],
        name=flags["name"],
        max_budget_usd=flags["max_budget_usd"],
        max_tokens=flags["max_tokens"],
        on_limit=flags["on_limit"] or "",
        max_turns=flags["max_turns"],
        timeout=flags["timeout"],
        permission_mode=flags["permission_mode"],
        permission_prompts=flags["permission_prompts"],
        rules=(
            *allowed,
            *permission_rules("deny", flags.get("disallowed_tools", ())),
            *settings.rules,
        ),
        add_dir=tuple(os.path.normpath(os.path.join(root, os.path.expanduser(d))) for d in folders),
    )
    context.configure(settings)
    return setup, settings.value


def prompt(arguments: Sequence[str]) -> str:
    """The words of the command; `-` means stdin, which is also read when there are no words."""
    if not arguments:
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError("No prompt given. Pass it as an argument, or pipe it to stdin.")
        arguments = ("-",)
    parts = [" ".join(words) for words in _groups(arguments)]
    text = clean("\n\n".join(part for part in parts if part.strip()))
    if not text.strip():
        raise click.UsageError("The prompt is empty.")
    return text


def _groups(arguments: Sequence[str]) -> Iterator[list[str]]:
    words: list[str] = []
    for argument in arguments:
        if argument == "-":
            yield words
            yield [sys.stdin.buffer.read().decode("utf-8", "replace").strip("\n")]
            words = []
        else:
            words.append(argument)
    yield words


def schema(text: str) -> dict[str, Any] | None:
    """A JSON schema from a file, or as it is."""
    if not text:
        return None
    value = _json(text, "--output-schema")
    if not isinstance(value, dict):
        raise click.UsageError("--output-schema must be a JSON Schema (a JSON object).")
    return value


def _json(argument: str, flag: str) -> Any:
    text, name = argument, flag
    if not argument.lstrip().startswith(("{", "[")):
        name = argument
        try:
            with open(os.path.expanduser(argument), encoding="utf-8-sig") as file:
                text = file.read()
        except OSError as error:
            raise click.UsageError(
                f"{flag}: {argument} cannot be read ({error.strerror})."
            ) from None
        except UnicodeDecodeError:
            raise click.UsageError(f"{flag}: {argument} is not text.") from None
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{name} is not valid JSON: {error}.") from None


def stream_prompts() -> Iterator[str]:
    """Prompts from lines of `stream-json`: each user message is one."""
    for n, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            content = value["message"]["content"] if value.get("type") == "user" else None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(
                f"Line {n} of stdin is not a stream-json message. It was skipped."
            ) from None
        if content is None:
            continue
        if isinstance(content, str):
            yield content
        else:
            yield "\n".join(part.get("text", "") for part in content if part.get("type") == "text")
