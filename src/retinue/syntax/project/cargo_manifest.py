"""Cargo.toml, with the line of each statement."""

from __future__ import annotations

from retinue.syntax.project.places import Quote
from retinue.syntax.project.project_facts import Manifest, ProjectCommand
from retinue.syntax.project.toml_file import TomlFile


def read_cargo(path: str, text: str) -> Manifest:
    toml = TomlFile(path, text)
    base = "package" if toml.table("package") else "workspace"
    manifest = Manifest(
        path, name=toml.text("package", "name"), version=toml.text("package", "version")
    )
    manifest.package = manifest.name.replace("-", "_")
    manifest.description = toml.quote("package", "description")
    programs = toml.get("bin")
    for n, _ in enumerate(programs if isinstance(programs, list) else []):
        program, file = toml.text("bin", n, "name"), toml.text("bin", n, "path")
        if program:
            place = toml.at("bin", n)
            target = file or f"src/bin/{program}.rs"
            manifest.commands.append(ProjectCommand(program, place, note="[[bin]]", target=target))
    if manifest.name and not manifest.commands:
        manifest.commands.append(
            ProjectCommand(manifest.name, toml.at("package"), target="src/main.rs")
        )
    build = toml.text("package", "build")
    if build:
        place = toml.at("package", "build")
        manifest.commands.append(ProjectCommand("build script", place, note=build, target=build))
    if least := toml.text(base, "rust-version"):
        manifest.needs.append(Quote(f"Rust {least}", toml.at(base, "rust-version")))
    needed = toml.table("dependencies")
    if needed:
        places = [toml.at("dependencies"), *(toml.at("dependencies", name) for name in needed)]
        manifest.requires = list(needed)
        manifest.requires_at = min(p for p in places if p.line > 1)
    return manifest
