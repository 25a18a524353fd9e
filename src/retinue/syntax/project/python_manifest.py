"""pyproject.toml, setup.cfg and tox.ini, with the line of each statement."""

from __future__ import annotations

import configparser
import re

from retinue.syntax.project.places import Place, Quote, flat
from retinue.syntax.project.project_facts import Manifest, ProjectCommand
from retinue.syntax.project.toml_file import TomlFile

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def read_pyproject(path: str, text: str) -> Manifest:
    toml = TomlFile(path, text)
    base: tuple[str, ...] = ("project",) if toml.table("project") else ("tool", "poetry")
    manifest = Manifest(path, name=toml.text(*base, "name"), version=toml.text(*base, "version"))
    manifest.package = manifest.name.replace("-", "_").lower()
    manifest.description = toml.quote(*base, "description")
    for table in ((*base, "scripts"), (*base, "gui-scripts")):
        for name, target in toml.table(*table).items():
            if isinstance(target, str):
                manifest.commands.append(
                    ProjectCommand(name, toml.at(*table, name), note=target, target=target)
                )
    python = toml.text("project", "requires-python")
    if python:
        place = toml.at("project", "requires-python")
        manifest.needs.append(Quote(f"Python {python}", place))
    backend = toml.text("build-system", "build-backend")
    if backend:
        place = toml.at("build-system", "build-backend")
        manifest.builder = Quote(backend.split(".")[0].split(":")[0], place)
    _take_dependencies(manifest, toml, base)
    manifest.commands += _pytest(toml)
    manifest.commands += _tox(toml)
    return manifest


def _take_dependencies(manifest: Manifest, toml: TomlFile, base: tuple[str, ...]) -> None:
    needed = toml.get(*base, "dependencies")
    if isinstance(needed, dict):
        names = [name for name in needed if name != "python"]
    else:
        items = needed if isinstance(needed, list) else []
        names = [m[0] for item in items if (m := _NAME.match(str(item)))]
    if names:
        manifest.requires, manifest.requires_at = names, toml.at(*base, "dependencies")


def _pytest(toml: TomlFile) -> list[ProjectCommand]:
    table = ("tool", "pytest", "ini_options")
    if toml.get(*table) is None:
        return []
    folders = toml.get(*table, "testpaths")
    if isinstance(folders, str):
        folders = folders.split()
    if not isinstance(folders, list) or not folders:
        return [ProjectCommand("pytest", toml.at(*table))]
    where = ", ".join(f"{str(folder).rstrip('/')}/" for folder in folders[:3])
    return [ProjectCommand("pytest", toml.at(*table, "testpaths"), note=f"tests are in {where}")]


def _tox(toml: TomlFile) -> list[ProjectCommand]:
    names = toml.get("tool", "tox", "env_list")
    if not isinstance(names, list):
        return []
    env_names = [str(n) for n in names if isinstance(n, str)]
    return [_tox_command(env_names, toml.at("tool", "tox", "env_list"))] if env_names else []


def _tox_command(names: list[str], place: Place) -> ProjectCommand:
    if len(names) < 2:
        return ProjectCommand("tox", place, note=f'1 environment, "{names[0]}"')
    return ProjectCommand(
        "tox", place, note=f'{len(names)} environments, from "{names[0]}" to "{names[-1]}"'
    )


def read_ini(path: str, text: str) -> Manifest:
    """setup.cfg, tox.ini and pytest.ini."""
    parser = configparser.RawConfigParser(strict=False, interpolation=None)
    parser.read_string(text)
    lines = text.split("\n")

    def at(section: str, key: str = "") -> Place:
        start = next((n for n, line in enumerate(lines) if line.strip() == f"[{section}]"), 0)
        if key:
            for n in range(start + 1, len(lines)):
                if re.match(rf"\s*{re.escape(key)}\s*[=:]", lines[n], re.IGNORECASE):
                    return Place(path, n + 1)
        return Place(path, start + 1)

    manifest = Manifest(path)

    def get(section: str, key: str) -> str:
        return parser.get(section, key, fallback="").strip()

    manifest.name, manifest.version = get("metadata", "name"), get("metadata", "version")
    if manifest.version.startswith(("attr:", "file:")):
        manifest.version = ""
    if text_ := flat(get("metadata", "description")):
        manifest.description = Quote(text_, at("metadata", "description"))
    if python := get("options", "python_requires"):
        manifest.needs.append(Quote(f"Python {python}", at("options", "python_requires")))
    names = [m[0] for x in get("options", "install_requires").split("\n") if (m := _NAME.match(x))]
    if names:
        manifest.requires, manifest.requires_at = names, at("options", "install_requires")
    for row in get("options.entry_points", "console_scripts").split("\n"):
        name, sign, target = (part.strip() for part in row.partition("="))
        if sign:
            place = at("options.entry_points", name)
            manifest.commands.append(ProjectCommand(name, place, note=target, target=target))
    environments = [x for x in re.split(r"[,\s]+", get("tox", "envlist")) if x]
    if environments:
        manifest.commands.append(_tox_command(environments, at("tox", "envlist")))
    if parser.has_section("tool:pytest") or parser.has_section("pytest"):
        section = "tool:pytest" if parser.has_section("tool:pytest") else "pytest"
        manifest.commands.append(ProjectCommand("pytest", at(section)))
    return manifest
