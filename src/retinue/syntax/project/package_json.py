"""package.json and composer.json, with the line of each statement."""

from __future__ import annotations

import json
from typing import Any

from retinue.syntax.project.json_positions import key_lines
from retinue.syntax.project.places import Place, Quote, flat
from retinue.syntax.project.project_facts import Manifest, ProjectCommand

SCRIPTS = ("start", "dev", "build", "test", "lint", "check")


def read_package_json(path: str, text: str) -> Manifest | None:
    data = json.loads(text)
    if not isinstance(data, dict):
        return None
    lines = key_lines(text)

    def at(*key: str | int) -> Place:
        return Place(path, lines.get(key, 1))

    manifest = Manifest(path, name=_text(data.get("name")), version=_text(data.get("version")))
    manifest.package = manifest.name
    if description := flat(_text(data.get("description"))):
        manifest.description = Quote(description, at("description"))
    for engine, version in _table(data.get("engines")).items():
        if engine == "node" and isinstance(version, str):
            manifest.needs.append(Quote(f"Node {version}", at("engines", engine)))
    manifest.commands += _entries(data, manifest.name, at)
    manifest.commands += _scripts(data, at)
    needed = _table(data.get("dependencies"))
    if needed:
        manifest.requires, manifest.requires_at = list(needed), at("dependencies")
    return manifest


def _entries(data: dict[str, Any], name: str, at: Any) -> list[ProjectCommand]:
    if not name:  # it only says how the files next to it are read, and cannot be named
        return []
    programs = data.get("bin")
    if isinstance(programs, str):
        return [ProjectCommand(name, at("bin"), note=programs, target=programs)]
    out = [
        ProjectCommand(program, at("bin", program), note=file, target=file)
        for program, file in _table(programs).items()
        if isinstance(file, str)
    ]
    main = _text(data.get("main"))
    if main:
        out.append(ProjectCommand(f"require('{name}')", at("main"), note=main, target=main))
        return out
    exported = data.get("exports")
    first = exported.get(".") if isinstance(exported, dict) else exported
    while isinstance(first, dict):
        first = next(
            (first[k] for k in ("source", "import", "default", "require") if k in first), ""
        )
    if isinstance(first, str) and first:
        out.append(ProjectCommand(f"import '{name}'", at("exports"), note=first, target=first))
    elif not out:
        out.append(ProjectCommand(f"require('{name}')", at("name"), target="index.js"))
    return out


def _scripts(data: dict[str, Any], at: Any) -> list[ProjectCommand]:
    scripts = _table(data.get("scripts"))
    return [
        ProjectCommand(
            f"npm {name}" if name in ("start", "test") else f"npm run {name}",
            at("scripts", name),
            note=_text(scripts[name]).split()[0],
        )
        for name in SCRIPTS
        if _text(scripts.get(name)).strip()
    ]


def read_composer_json(path: str, text: str) -> Manifest | None:
    data = json.loads(text)
    if not isinstance(data, dict):
        return None
    lines = key_lines(text)

    def at(*key: str | int) -> Place:
        return Place(path, lines.get(key, 1))

    manifest = Manifest(path, name=_text(data.get("name")), version=_text(data.get("version")))
    if description := flat(_text(data.get("description"))):
        manifest.description = Quote(description, at("description"))
    needed = _table(data.get("require"))
    if php := _text(needed.get("php")):
        manifest.needs.append(Quote(f"PHP {php}", at("require", "php")))
    packages = [name for name in needed if "/" in name]
    if packages:
        manifest.requires, manifest.requires_at = packages, at("require")
    programs = data.get("bin")
    for n, file in enumerate(programs if isinstance(programs, list) else []):
        if isinstance(file, str):
            name = file.rsplit("/", 1)[-1]
            manifest.commands.append(ProjectCommand(name, at("bin", n), note=file, target=file))
    scripts = _table(data.get("scripts"))
    for name in SCRIPTS:
        if name in scripts:
            manifest.commands.append(ProjectCommand(f"composer {name}", at("scripts", name)))
    return manifest


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
