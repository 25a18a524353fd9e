"""The project: its configuration, the trust in it, and its agents."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from retinue.cli.context import CommandContext
from retinue.cli.doctor.finding import Finding
from retinue.errors import ConfigError


def configuration(context: CommandContext) -> Iterator[Finding]:
    from retinue.host.project_config import load, user_file

    settings = load(context.project, strict=False)
    for problem in settings.problems:
        yield Finding(
            name="configuration", state="broken", text=str(problem), fix=f"edit {problem.where}"
        )
    for name, hint in unknown_variables(context):
        yield Finding(
            name="configuration",
            state="degraded",
            text=f"{name} is not a Retinue variable.{hint}",
            fix=f"unset {name}",
        )
    if not settings.problems:
        files = [layer.where for layer in settings.layers if layer.kind in ("user", "project")]
        user = user_file(context.environ)
        text = (
            ", ".join(files)
            if files
            else (f"all settings are at their defaults; your user config would be {user}")
        )
        yield Finding(name="configuration", state="ok", text=text)


def unknown_variables(context: CommandContext) -> Iterator[tuple[str, str]]:
    """Variables that look like ours and are not, with what was probably meant."""
    from retinue.formats.suggestion import did_you_mean

    names = [name for name in context.environ if name.startswith("RETINUE_")]
    if not names:
        return
    variables = known_variables()
    for name in sorted(names):
        if name not in variables:
            yield name, did_you_mean(name, variables)


OTHERS = ("RETINUE_DEBUG", "RETINUE_STORE", "RETINUE_CWD", "RETINUE_MODEL", "RETINUE_TOOL")


def known_variables() -> set[str]:
    """Those of settings, and those of every flag of every command."""
    import click

    from retinue.cli.command_list import COMMANDS, cli
    from retinue.config.setting_list import every_setting

    variables = {name for s in every_setting() for name in s.variables} | set(OTHERS)
    click_context = click.Context(cli)
    todo = [c for name in COMMANDS if (c := cli.get_command(click_context, name)) is not None]
    while todo:
        command = todo.pop()
        if isinstance(command, click.Group):
            todo += command.commands.values()
        for parameter in command.params:
            named = parameter.envvar
            variables |= {named} if isinstance(named, str) else set(named or ())
    return variables


def trust(context: CommandContext) -> Iterator[Finding]:
    from retinue.host.project_trust import trust_file

    try:
        stands = context.project.trust.read()
    except ConfigError as error:
        fix = f"move {trust_file(context.environ)} away, then trust your projects again"
        yield Finding(name="trust", state="broken", text=str(error), fix=fix)
        return
    if text := stands.problem():
        yield Finding(
            name="trust",
            state="degraded",
            text=text,
            fix="review them: retinue trust",
        )
    else:
        text = (
            f"{len(stands.files)} trusted file{'s' if len(stands.files) > 1 else ''}"
            if stands.is_trusted
            else "this project has no files that need trust"
        )
        yield Finding(name="trust", state="ok", text=text)
    for name, reason in stands.refused.items():
        yield Finding(
            name="trust",
            state="degraded",
            text=f"{name}: {reason}",
            fix="replace it with a regular file in the project",
        )


def agents(context: CommandContext) -> Iterator[Finding]:
    from retinue.agent_files.discovery import find_agents
    from retinue.agent_files.lint import lint
    from retinue.host.project_paths import config_home

    library = find_agents(
        context.paths.cwd,
        context.environ.get("HOME") or None,
        context.paths.root,
        trusted=context.project.trust.is_trusted,
        config_home=os.path.dirname(config_home(context.environ)),
        codex_home=context.environ.get("CODEX_HOME") or None,
    )
    count = Counter(c.severity for c in lint(library))
    n_errors, n_warnings = count["error"], count["warning"]
    text = (
        f"{len(library.agents)} usable in files, {len(library.broken)} broken; {n_errors} errors, "
        f"{n_warnings} warnings; the default agent needs no file"
    )
    state = "degraded" if library.broken or n_errors or n_warnings else "ok"
    fix = "retinue agents lint" if state != "ok" else ""
    yield Finding(name="agents", state=state, text=text, fix=fix)  # type: ignore[arg-type]
