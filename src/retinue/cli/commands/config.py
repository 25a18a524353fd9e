"""`retinue config`: shows settings and where each value comes from, and changes one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from retinue import errors
from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, note, out, pass_context
from retinue.errors import ConfigError
from retinue.formats.toml_text import load as load_toml
from retinue.host.shown_values import ShownValues
from retinue.view.format import json_line

if TYPE_CHECKING:
    from retinue.config.layers import EffectiveSettings

SHOWN_ALWAYS = ("models.default", "permissions.mode")


@click.group("config", invoke_without_command=True)
@click.option("--show-origin", is_flag=True, help="Show where each value comes from.")
@click.option("--defaults", is_flag=True, help="Include settings left at their defaults.")
@click.option("--json", "as_json", is_flag=True)
@common
@click.pass_context
def command(click_context: click.Context, show_origin: bool, defaults: bool, as_json: bool) -> Any:
    """Show the settings and where they come from. `get`, `set` and `path` work on single values
    and files."""
    if click_context.invoked_subcommand is None:
        context = click_context.find_object(CommandContext)
        assert context is not None
        return _show(context, show_origin=show_origin, everything=defaults, as_json=as_json)
    return None


@command.command("get")
@click.argument("key")
@click.option("--json", "as_json", is_flag=True)
@common
@pass_context
def get(context: CommandContext, key: str, as_json: bool) -> int:
    """Print one value, e.g. `retinue config get models.default`."""
    from retinue.config.setting_list import is_mapping
    from retinue.host.project_config import load

    settings, path = load(context.project, strict=False), _key(key)
    setting = _setting(path)
    hide = ShownValues(context.environ)
    if is_mapping(setting.type) and len(path) == len(setting.key):
        value: Any = {
            ".".join(k[len(path) :]): hide.value(k, f.value)
            for k, f in settings.by_key.items()
            if k[: len(path)] == path
        }
    elif path in settings.by_key:
        value = hide.value(path, settings.by_key[path].value)
    elif path == setting.key:
        value = setting.default
    else:
        raise ConfigError(f"{key} is not set. Run `retinue config` to see what is.")
    plain = isinstance(value, str) and not as_json
    out(value if plain else json_line(value))
    return _complain(settings)


@command.command("set")
@click.argument("key")
@click.argument("value")
@click.option(
    "--project", is_flag=True, help="Write to the project config instead of your user config."
)
@common
@pass_context
def set_(context: CommandContext, key: str, value: str, project: bool) -> None:
    """Set one value in your user config, or in the project config. Comments and order are kept."""
    from retinue.config.toml_edit import set_value
    from retinue.formats.toml_positions import dotted
    from retinue.host.project_config import NAMES, user_file

    path = _key(key)
    setting = _setting(path)
    if project and setting.about.scope == "user":
        raise ConfigError(f"{key} can only be set in your user config. Remove --project.")
    parsed = _value(path, value)
    if path == ("models", "default"):
        _check_model(context, str(parsed))
    file = (
        os.path.join(context.paths.root, ".retinue", NAMES[0])
        if project
        else user_file(context.environ)
    )
    if project and not os.path.realpath(file).startswith(
        os.path.realpath(context.paths.root) + os.sep
    ):
        raise ConfigError(f"{file} is outside the project. Nothing was changed.")
    is_new = set_value(file, path, parsed, "project" if project else "user")
    hidden = ShownValues(context.environ).value(path, parsed)
    note(f"{dotted(path)} = {_toml(hidden)} in {file}" + ("" if is_new else " (unchanged)"))
    if path == ("sandbox", "unsafe_no_sandbox") and parsed is True:
        note("Commands will run with all your permissions when no sandbox is available.")
    _after(context, path, file, is_project=project)


@command.command("path")
@click.option("--json", "as_json", is_flag=True)
@common
@pass_context
def path_(context: CommandContext, as_json: bool) -> None:
    """Print the config files, highest precedence first, and whether they are used."""
    from retinue.host.project_config import project_files, user_file

    paths = project_files(context.paths.root, context.paths.cwd)
    try:
        stands = context.project.trust.read()
        files = [
            (f, "project", "used" if stands.trusts(f) else stands.why() or "not trusted")
            for f in paths
        ]
    except ConfigError as error:
        files = [(f, "project", str(error)) for f in paths]
    user = user_file(context.environ)
    rows = [*reversed(files), (user, "user", "used" if os.path.lexists(user) else "not found")]
    if as_json:
        out(json_line([dict(zip(("path", "kind", "state"), row, strict=True)) for row in rows]))
        return
    for row in rows:
        out("  ".join(row))


def _show(context: CommandContext, *, show_origin: bool, everything: bool, as_json: bool) -> int:
    from retinue.host.project_config import load

    settings = load(context.project, strict=False)
    if as_json:
        out(json_line(_as_json(context, settings)))
        return exit_codes.USAGE if settings.problems else exit_codes.OK
    for line in _lines(
        context, settings, show_origin=show_origin, everything=everything or show_origin
    ):
        out(line)
    for text in settings.notes:
        note(f"retinue: {text}")
    return _complain(settings)


def _complain(settings: EffectiveSettings) -> int:
    for problem in settings.problems:
        note(f"retinue: {problem}")
    return exit_codes.USAGE if settings.problems else exit_codes.OK


def _lines(
    context: CommandContext, settings: EffectiveSettings, *, show_origin: bool, everything: bool
) -> Iterator[str]:
    from retinue.formats.toml_positions import dotted

    section: tuple[str, ...] | None = None
    for key, value, origin in _rows(context, settings):
        if origin == "default" and not everything and dotted(key) not in SHOWN_ALWAYS:
            continue
        head = key[:-1]
        if head != section:
            if section is not None:
                yield ""
            section = head
            if head:
                yield f"[{dotted(head)}]"
        text = (
            f"{dotted(key[-1:])} = {_toml(value)}"
            if value is not None
            else f"# {dotted(key[-1:])} is not set"
        )
        state = ShownValues(context.environ).state(key, value)
        tail = "  # " + "; ".join(t for t in (state, origin if show_origin else "") if t)
        yield text + (tail if len(tail) > 4 else "")
    yield ""
    yield (
        "# keys: " + "; ".join(f"{name} is set" for name in _keys(context))
        if any(_keys(context))
        else "# keys: none set"
    )


def _rows(
    context: CommandContext, settings: EffectiveSettings
) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Everything that is set, and every setting that could be, in the order of the schema."""
    from retinue.config.setting_list import every_setting, is_mapping

    hide = ShownValues(context.environ)
    rest = dict(settings.by_key)
    rows: list[tuple[tuple[str, ...], Any, str]] = []
    for setting in every_setting():
        size = len(setting.key)
        for key in list(rest):
            is_it = len(key) >= size and all(
                p in ("*", k) for p, k in zip(setting.key, key, strict=False)
            )
            if is_it and (len(key) == size or is_mapping(setting.type)):
                entry = rest.pop(key)
                rows.append((key, hide.value(key, entry.value), "; ".join(map(str, entry.origins))))
        if (
            "*" not in setting.key
            and not is_mapping(setting.type)
            and setting.key not in settings.by_key
        ):
            rows.append((setting.key, setting.default, "default"))
    yield from sorted(rows, key=lambda row: (len(row[0]) > 1, _rank(row[0]), row[0][:-1]))


def _rank(key: tuple[str, ...]) -> int:
    from retinue.config.schema import Configuration

    return Configuration.__struct_fields__.index(key[0])


def _as_json(context: CommandContext, settings: EffectiveSettings) -> dict[str, Any]:
    from retinue.formats.toml_positions import dotted

    values = {}
    for key, value, _ in _rows(context, settings):
        setting = settings.by_key.get(key)
        origins = (
            [{"kind": o.kind, "where": o.where, "line": o.line} for o in setting.origins]
            if setting
            else []
        )
        values[dotted(key)] = {
            "value": value,
            "origins": origins or [{"kind": "default", "where": "", "line": 0}],
        }
    return {
        "values": values,
        "keys": list(_keys(context)),
        "notes": list(settings.notes),
        "problems": [
            {
                "where": p.where,
                "line": p.line,
                "column": p.column,
                "key": p.key,
                "message": p.message,
            }
            for p in settings.problems
        ],
    }


def _keys(context: CommandContext) -> Iterator[str]:
    """The names of the variables that hold a key."""
    from retinue.models.providers import PROVIDERS

    names = dict.fromkeys(key for p in PROVIDERS.values() for key in p.keys)
    return (name for name in names if context.environ.get(name, "").strip())


def _toml(value: Any) -> str:
    from retinue.config.toml_edit import literal

    return literal(value)


def _key(text: str) -> tuple[str, ...]:
    from retinue.formats.toml_positions import read_key

    try:
        return read_key(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _setting(path: tuple[str, ...]) -> Any:
    from retinue.config.setting_list import every_setting, setting_of
    from retinue.formats.suggestion import did_you_mean, nearest
    from retinue.formats.toml_positions import dotted

    setting = setting_of(path)
    if setting is None:
        keys = [dotted(s.key) for s in every_setting()]
        by_last = {key.rpartition(".")[2]: key for key in reversed(keys)}
        hint = did_you_mean(dotted(path), keys)
        if not hint and (near := nearest(dotted(path), by_last)):
            hint = f" Did you mean {by_last[near]!r}?"
        raise ConfigError(
            f"Unknown setting {dotted(path)!r}.{hint} Run `retinue config --defaults` to list them."
        )
    return setting


def _value(path: tuple[str, ...], text: str) -> Any:
    """What was written behind `set`, as the setting's type has it."""
    from typing import get_args

    from retinue.config.setting_list import bare, check_value, from_text, is_mapping
    from retinue.formats.toml_positions import dotted

    setting = _setting(path)
    kind = setting.type
    if is_mapping(kind):
        if len(path) == len(setting.key):
            raise ConfigError(f"{dotted(path)} needs a name: {dotted(path)}.NAME")
        kind = get_args(bare(kind))[1]
        if len(path) > len(setting.key) + 1 or is_mapping(kind):
            raise ConfigError(
                f"{dotted(path)} cannot be set with this command. Edit the file by hand."
            )
    try:
        if text.strip().startswith("["):
            return check_value(kind, setting.about, load_toml(f"x = {text}")["x"])
        return from_text(setting, text, kind)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{dotted(path)}: {error}") from None


def _check_model(context: CommandContext, name: str) -> None:
    """An unknown name is refused; a missing key is reported."""
    from retinue.config.model_config import model_environment, resolved
    from retinue.host import model_choice
    from retinue.host.project_config import load

    models = load(context.project, strict=False).value.models
    try:
        model_choice.checked(resolved(name, models), model_environment(models, context.environ))
    except errors.NoProvider as error:
        note(f"retinue: {error}")


def _after(context: CommandContext, path: tuple[str, ...], file: str, *, is_project: bool) -> None:
    """What keeps the new value from counting."""
    from retinue.host.project_config import load

    if is_project:
        try:
            if why := context.project.trust.read().why():
                note(f"This value has no effect yet: {why}")
        except ConfigError as error:
            note(f"This value has no effect yet: {error}")
        return
    setting = load(context.project, strict=False).by_key.get(path)
    if setting is not None and setting.origins[-1].where != file:
        note(f"This value has no effect here: {setting.origins[-1]} overrides it.")
