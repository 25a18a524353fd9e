"""`retinue trust`: shows what a project's files would do, and trusts them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, note, out, pass_context
from retinue.cli.terminal.typed_answer import line_after
from retinue.errors import ConfigError
from retinue.formats.safe_text import json_text, one_line, reveal
from retinue.host.project_trust import project_text

if TYPE_CHECKING:
    from retinue.config.trust_state import ProjectTrust

SERVERS = (".mcp.json", "mcp.json", "settings.json", "settings.local.json", "config.toml")
ADVICE = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")


@click.command("trust")
@click.argument("path", default="", metavar="[PATH]")
@click.option("--yes", "-y", is_flag=True, help="Trust without asking.")
@click.option("--list", "list_all", is_flag=True, help="List the trusted projects.")
@click.option("--revoke", is_flag=True, help="Stop trusting this project.")
@click.option(
    "--check", is_flag=True, help="Only check: exits with code 1 if the project is not trusted."
)
@common
@pass_context
def command(
    context: CommandContext, path: str, yes: bool, list_all: bool, revoke: bool, check: bool
) -> int:
    """Review and trust a project's configuration, agents and MCP servers.

    Trust covers this directory with exactly these files. If one of them changes, you are asked
    again."""
    from retinue.host.project_trust import open_trust_file

    if sum((list_all, revoke, check)) > 1:
        raise click.UsageError("Use only one of --list, --revoke and --check.")
    if path:
        context.enter(path)
    trust = open_trust_file(context.environ)
    if list_all:
        return _list(trust.projects())
    root = context.paths.root
    if context.project.trust.is_home:
        raise ConfigError(f"{root} is not a project. Change to a project directory, or name one.")
    if revoke:
        is_revoked = trust.revoke(root)
        note(f"{root} is no longer trusted." if is_revoked else f"{root} was not trusted.")
        return exit_codes.OK
    review = trust.survey(root)
    if check:
        return _check(review)
    if review.state in ("empty", "trusted"):
        why = "nothing to trust" if review.state == "empty" else "trusted; nothing has changed"
        note(f"{root}: {why}")
        return exit_codes.OK
    if not review.files and not review.removed:
        _refused(review)
        raise ConfigError("None of these files can be trusted. Nothing was changed.")
    for line in preview(context, review):
        note(line)
    if not yes and not _agreed():
        return (
            exit_codes.FAILED
            if sys.stdin is not None and sys.stdin.isatty()
            else exit_codes.NEEDS_INPUT
        )
    trust.grant(review)
    note(f"trusted: {root}")
    return exit_codes.OK


def _check(review: ProjectTrust) -> int:
    if review.state in ("trusted", "empty"):
        out("trusted" if review.is_trusted else "nothing to trust")
        return exit_codes.OK
    out(review.why())
    return exit_codes.FAILED


def _list(projects: dict[str, Any]) -> int:
    for root, record in sorted(projects.items()):
        note_text = "" if os.path.isdir(root) else "  (gone)"
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.at / 1000))
        n = len(record.files)
        out(f"{one_line(root)}  {n} file{'' if n == 1 else 's'}  since {day}{note_text}")
    if not projects:
        note("No project is trusted.")
    return exit_codes.OK


def _agreed() -> bool:
    answer = line_after("Trust these files? [y/N] ")
    if not sys.stdin or not sys.stdin.isatty():
        sys.stderr.write("\n")
    if answer is not None and answer.lower() in ("y", "yes"):
        return True
    note("Nothing was trusted." + (" Answer yes, or pass --yes." if answer is None else ""))
    return False


def _refused(review: ProjectTrust) -> None:
    for name, why in sorted(review.refused.items()):
        note(f"  {one_line(name)}: {why}; it is ignored")


def preview(context: CommandContext, review: ProjectTrust) -> Iterator[str]:
    """What trusting would make active, in words in which nothing can hide."""
    yield f"project: {_name(review.root)}"
    for word, names in (
        ("changed", review.changed),
        ("new", review.added),
        ("gone", review.removed),
    ):
        if review.state == "changed" and names:
            yield f"{word} since you trusted it: {', '.join(map(_name, names))}"
    sections = (
        ("settings", _settings(review)),
        ("MCP servers that would be started", _servers(review)),
        ("agents that would run more calls without asking", _agents(context, review)),
        ("instructions that would be added to prompts", _advice(review)),
        ("never run", _hooks(review)),
        ("not trusted", (f"{_name(n)}: {why}" for n, why in sorted(review.refused.items()))),
        (
            "all files",
            (f"{_name(n)}  sha256 {digest[:16]}" for n, digest in sorted(review.files.items())),
        ),
    )
    for title, lines in sections:
        listed = list(lines)
        if listed:
            yield f"{title}:"
            yield from (f"  {line}" for line in listed)


def _text(review: ProjectTrust, name: str) -> str | None:
    return project_text(os.path.join(review.root, name))


def _settings(review: ProjectTrust) -> Iterator[str]:
    from retinue.config.layer_reader import read_layer
    from retinue.config.toml_edit import literal
    from retinue.formats.toml_positions import dotted

    for name in sorted(review.files):
        if os.path.basename(os.path.dirname(name)) != ".retinue" or not os.path.basename(
            name
        ).startswith("config."):
            continue
        layer = read_layer(os.path.join(review.root, name), "project")
        for key, setting in layer.by_key.items():
            if key[0] == "mcp_servers":
                yield f"{_one(dotted(key), 200)}: {_command(setting.value)}  ({_name(name)})"
            else:
                value = _one(literal(setting.value), 400)
                yield f"{_one(dotted(key), 200)} = {value}  ({_name(name)})"
        for problem in layer.problems:
            yield f"invalid, so not used: {_name(str(problem))}"


def _servers(review: ProjectTrust) -> Iterator[str]:
    from retinue.tools.mcp_client.config_dialects import dialect_of, entries, parse
    from retinue.tools.mcp_client.server_config import ServerConfigSource

    for name in sorted(review.files):
        is_ours = os.path.basename(os.path.dirname(name)) == ".retinue"  # shown among the settings
        text = _text(review, name) if os.path.basename(name) in SERVERS and not is_ours else None
        if text is None:
            continue
        path = Path(review.root, name)
        try:
            tree = parse(text, is_toml=path.suffix == ".toml")
        except ValueError as error:
            yield f"{_name(name)} cannot be read, so it starts nothing: {_one(str(error), 200)}"
            continue
        if not isinstance(tree, dict):
            continue
        servers, _ = entries(
            tree, ServerConfigSource(file=str(path), dialect=dialect_of(tree, path))
        )
        for server, fields in servers.items():
            yield f"{_one(server, 100)}: {_command(fields)}  ({_name(name)})"


def _command(fields: Any) -> str:
    """A server's command as it would be started, or where it is; of variables and headers only the
    names."""
    if not isinstance(fields, dict):
        return "(not a server)"
    args = fields.get("args") or []
    what = (
        " ".join(
            json_text(json.dumps(a, ensure_ascii=False))
            for a in [fields.get("command"), *args]
            if a
        )
        if fields.get("command")
        else _name(str(fields.get("url") or fields.get("httpUrl") or "(nothing)"))
    )
    more = [f"in {_name(str(fields['cwd']))}"] if fields.get("cwd") else []
    for key in ("env", "env_vars", "headers", "http_headers", "env_http_headers"):
        if names := fields.get(key):
            more.append(f"{key}: {', '.join(_name(str(name)) for name in names)}")
    if token := fields.get("bearer_token_env_var"):
        more.append(f"with the token in {_name(str(token))}")
    if fields.get("trust"):
        more.append("its claims about its tools are trusted")
    return _cut("; ".join([what, *more]), 2_000)


def _agents(context: CommandContext, review: ProjectTrust) -> Iterator[str]:
    from retinue.agent_files.agent_spec import WIDENING
    from retinue.agent_files.discovery import find_agents
    from retinue.config.trusted_files import home_of
    from retinue.host.project_paths import config_home

    lines: set[str] = set()
    for folder in sorted({home_of(name) for name in review.files}):
        here = os.path.join(review.root, folder)
        if not os.path.isdir(here):
            continue
        files = find_agents(
            here,
            None,
            review.root,
            trusted=True,
            config_home=os.path.dirname(config_home(context.environ)),
        )
        for spec in (*files.agents.values(), *(s.spec for s in files.shadowed)):
            more = [f"mode {spec.permission_mode}"] if spec.permission_mode in WIDENING else []
            more += [_name(rule) for rule in spec.rules if rule.startswith("allow")]
            more += [
                f"server {_name(name)}: {_command(fields)}"
                for name, fields in spec.mcp_servers.items()
            ]
            where = os.path.relpath(spec.source.path, review.root)
            line = f"{_one(spec.name, 100)} ({_name(where)}): {_cut('; '.join(more), 2_000)}"
            if more and line not in lines:
                lines.add(line)
                yield line


def _advice(review: ProjectTrust) -> Iterator[str]:
    for name in sorted(review.files):
        base = os.path.basename(name)
        if base in ADVICE or base == "SKILL.md":
            size = (
                os.stat(os.path.join(review.root, name)).st_size
                if os.path.exists(os.path.join(review.root, name))
                else 0
            )
            yield f"{_name(name)}, {size} bytes"


def _hooks(review: ProjectTrust) -> Iterator[str]:
    for name in sorted(review.files):
        if os.path.basename(name) in ("settings.json", "settings.local.json"):
            text = _text(review, name) or ""
            if '"hooks"' in text:
                yield f"hooks in {_name(name)}"


def _one(text: str, most: int) -> str:
    return _cut(_name(text), most)


def _name(text: str) -> str:
    """A person decides by it: nothing in it is hidden."""
    return reveal(text, keep="")


def _cut(text: str, most: int) -> str:
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]}… ({more} more characters; see the file)"
