"""What a person asks for on the command line, as values: the prompt, the plan and the terms of a run."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from retinue.core.ids import clean
from retinue.core.values import Budget
from retinue.errors import ConfigError
from retinue.host.requests import Terms

_RULE = re.compile(r"[^\s,()]+(?:\([^)]*\))?")


def prompt(arguments: Sequence[str]) -> str:
    """The words of the command; `-` stands for what is on stdin, which is also taken when there are no words."""
    if not arguments:
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError("there is no prompt: write it behind the command, or pipe it in.")
        arguments = ("-",)
    parts = [" ".join(words) for words in _groups(arguments)]
    text = clean("\n\n".join(part for part in parts if part.strip()))
    if not text.strip():
        raise click.UsageError("the prompt is empty.")
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


def mode(name: str) -> str:
    """One of our permission modes, whatever the name comes from."""
    if not name:
        return ""
    from retinue.config import value_checks as checks

    try:
        return checks.mode(name)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None


def rules(effect: str, texts: Sequence[str]) -> tuple[str, ...]:
    """`Read,Bash(git log:*)` as rules of ours. A tool that is not known is an error: nobody means a rule that never
    holds."""
    out: dict[str, None] = {}
    for text in texts:
        for item in _RULE.findall(text):
            tool, _, pattern = item.removesuffix(")").partition("(")
            pattern = re.sub(r":\*$", "*", pattern)
            names = tool_names(tool)
            for name in names[:1] if pattern else names:
                out[f"{effect}: {name}({pattern})" if pattern else f"{effect}: {name}"] = None
    return tuple(out)


def tool_names(word: str) -> tuple[str, ...]:
    """Our tools by any of the names that they have elsewhere; who speaks of `agent` means all that starts others."""
    from retinue.agent_files.agent_spec import did_you_mean
    from retinue.agent_files.tool_aliases import AGENT, CANONICAL, resolve
    from retinue.tools.families.profiles import FAMILIES, family

    if word == "*" or word.startswith("mcp__") or "*" in word:
        return (word,)
    spawning = tuple(dict.fromkeys(name for kind in FAMILIES for name in family(kind).tool_names))
    if word in spawning or word in ("skill", "artifact"):
        return (word,)
    found = resolve([word], "claude", lambda *said: None).names
    if not found:
        hint = did_you_mean(word, CANONICAL)
        raise click.UsageError(f"there is no tool {word!r}{'; ' + hint if hint else '.'} `retinue tools` lists them.")
    return tuple(n for name in found for n in ((AGENT, *spawning) if name == AGENT else (name,)))


def budget(usd: float | None, tokens: int | None) -> Budget:
    try:
        return Budget(usd=usd, tokens=tokens)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def schema(given: str) -> dict[str, Any] | None:
    """A JSON schema from a file, or as it is."""
    if not given:
        return None
    value = _json(given, "--output-schema")
    if not isinstance(value, dict):
        raise click.UsageError("--output-schema must be a JSON schema, which is an object.")
    return value


def _json(given: str, flag: str) -> Any:
    text, name = given, flag
    if not given.lstrip().startswith(("{", "[")):
        name = given
        try:
            with open(os.path.expanduser(given), encoding="utf-8-sig") as file:
                text = file.read()
        except OSError as error:
            raise click.UsageError(f"{flag}: {given} cannot be read ({error.strerror}).") from None
        except UnicodeDecodeError:
            raise click.UsageError(f"{flag}: {given} is not text.") from None
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{name} is not valid JSON: {error}.") from None


def families(names: Sequence[str]) -> tuple[str, ...] | None:
    """The families that were asked for, `none` for an agent that works alone; None when nothing was said."""
    from retinue.tools.families.profiles import family

    wanted = [n.strip() for text in names for n in text.split(",") if n.strip()]
    if not wanted:
        return None
    if wanted == ["none"]:
        return ()
    for name in wanted:
        family(name)
    return tuple(dict.fromkeys(wanted))


def terms(**fields: Any) -> Terms:
    """The terms of a run; a wrong number is told by its name."""
    turns = fields.get("max_turns")
    if turns is not None and turns < 1:
        raise click.UsageError(f"--max-turns must be 1 or more, not {turns}.")
    return Terms(**fields)


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
                f"line {n} of stdin is not a message of stream-json; nothing was started for it"
            ) from None
        if content is None:
            continue
        if isinstance(content, str):
            yield content
        else:
            yield "\n".join(part.get("text", "") for part in content if part.get("type") == "text")
