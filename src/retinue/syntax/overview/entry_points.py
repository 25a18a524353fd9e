"""Commands and the definitions they lead to: what manifests declare, and where programs start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import basename, dirname, join, normpath

from retinue.syntax.facts import DefinitionSite
from retinue.syntax.overview.map_facts import CommandRow
from retinue.syntax.project import readme
from retinue.syntax.project.places import Place
from retinue.syntax.project.project_facts import ProjectCommand, ProjectFacts
from retinue.syntax.source_tree import SourceTree

ASIDE = re.compile(
    r"\..+|examples?|docs?|bench.*|samples?|tests?|fixtures?|testdata|debian|vendor|third_party"
)
PYTHON_ROOTS = ("", "src", "lib", "python")
SCRIPT_ENDINGS = (".ts", ".tsx", ".js", ".mts", ".mjs")


def commands(tree: SourceTree, project: ProjectFacts) -> list[CommandRow]:
    """In this order: what manifests declare, programs that start by themselves, and commands that
    the README shows."""
    rows = [
        row
        for manifest in project.manifests
        if _is_own(manifest.path)
        for command in manifest.commands
        if (row := _row(tree, manifest.folder, command)) is not None
    ]
    led = {row.leads_place for row in rows}
    files = {row.leads_place.path for row in rows if row.leads_place}
    mains = list(starts(tree, project))
    named = [row for row in mains if row.place not in led and row.place.path not in files]
    bare = [n for n, row in enumerate(rows) if row.note == "bin_PROGRAMS" and not row.leads_to]
    for n in bare:  # automake names a program, and there is one place where one starts
        if len(mains) == 1:
            rows[n] = CommandRow(
                rows[n].text, rows[n].place, rows[n].note, mains[0].leads_to, mains[0].leads_place
            )
            named = []
    path = readme.readme_of(tree.texts)
    commands = readme.commands(path, tree.texts[path]) if path else []
    texts = {row.text for row in rows}
    led_first = sorted(rows, key=lambda row: not row.leads_to)
    n_led = sum(bool(row.leads_to) for row in rows)
    return [
        *led_first[:n_led],
        *named,
        *led_first[n_led:],
        *(CommandRow(c.text, c.place) for c in commands if c.text not in texts),
    ]


def _is_own(path: str) -> bool:
    """Not a manifest of an example, a test or a copy."""
    return not any(ASIDE.fullmatch(part) for part in path.split("/")[:-1])


def _row(tree: SourceTree, folder: str, command: ProjectCommand) -> CommandRow | None:
    if not command.target:
        return CommandRow(command.text, command.place, command.note)
    place, symbol = resolve(tree, folder, command.target)
    if place is None:
        if command.note:
            return CommandRow(command.text, command.place, command.note)
        return None
    note = "" if command.note == place.path else command.note
    return CommandRow(command.text, command.place, note, symbol, place)


def resolve(tree: SourceTree, folder: str, target: str) -> tuple[Place | None, str]:
    """The place that a manifest's target means, and the name of the definition there."""
    module, colon, symbol = target.partition(":")
    if colon:
        return _python(tree, folder, module, symbol.split("[")[0].strip().split(".")[0])
    path = normpath(join(folder, target))
    for candidate in (path, *(path + ending for ending in SCRIPT_ENDINGS)):
        facts = tree.parsed.get(candidate)
        if facts is not None:
            main = next((d for d in facts.definitions if is_main(d)), None)
            if main is not None:
                return Place(candidate, main.line), "main"
            return Place(candidate, 1), ""
    return None, ""


def _python(tree: SourceTree, folder: str, module: str, symbol: str) -> tuple[Place | None, str]:
    for root in PYTHON_ROOTS:
        base = normpath(join(folder, root, module.replace(".", "/")))
        for path in (f"{base}.py", f"{base}/__init__.py"):
            facts = tree.parsed.get(path)
            for one in facts.definitions if facts is not None else ():
                if one.name == symbol and not one.owner and "local" not in one.marks:
                    return Place(path, one.line), symbol
    return None, ""


def is_main(one: DefinitionSite) -> bool:
    return one.name in ("main", "Main") and one.kind in ("function", "method")


def starts(tree: SourceTree, project: ProjectFacts) -> Iterator[CommandRow]:
    """Source files in which a program starts, by the rule of their language."""
    for path, file in tree.source.items():
        facts = tree.parsed.get(path)
        if facts is None:
            continue
        if basename(path) == "__main__.py":
            first = min((c.line for c in facts.calls if c.around < 0), default=1)
            place = Place(path, facts.main or first)
            yield CommandRow(f"python -m {package_name(tree, path)}", place)
            continue
        if not facts.main:
            continue
        place = Place(path, facts.main)
        main = next((d for d in facts.definitions if is_main(d) and d.line == facts.main), None)
        if main is None:
            if file.language == "python" and _is_near(path):
                yield CommandRow(f"python {path}", place)
        else:
            name = program_name(path, project)
            yield CommandRow(name, place, leads_to=main.name, leads_place=place)


def _is_near(path: str) -> bool:
    return path.count("/") <= 1


def package_name(tree: SourceTree, path: str) -> str:
    """The package of a `__main__.py`, as it is imported."""
    folder = top = dirname(path)
    while top and f"{top}/__init__.py" in tree.files:
        top = dirname(top)
    return folder[len(top) :].strip("/").replace("/", ".") or folder


def program_name(path: str, project: ProjectFacts) -> str:
    """The name of a program. In Go and Rust its folder gives it, or the project; elsewhere only a
    manifest could, so it is the file."""
    folder = dirname(path)
    if not path.endswith((".go", ".rs")):
        return basename(path)
    if folder.endswith("/src") or folder == "src":
        folder = dirname(folder)
    return basename(folder) or project.name or basename(path)
