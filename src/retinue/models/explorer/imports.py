"""Import lines of several languages, first as they stand in a file (`read_import`), then as files
of the tree (`Resolver`). What is not part of the tree resolves to nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from posixpath import dirname, join, normpath, splitext

_FROM = re.compile(r"^\s*from\s+([.\w]+)\s+import\s+(.*)$")
_IMPORT = re.compile(r"^\s*import\s+([\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*[\w.]+(?:\s+as\s+\w+)?)*)")
_QUOTED = re.compile(r"""['"]([^'"]+)['"]""")
_SPECIFIER = re.compile(
    r"""(?:\bfrom\s*|^\s*import\s*|\brequire\(\s*|\bimport\(\s*)['"]([^'"]+)['"]"""
)
_USE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+(.+?);?\s*(?://.*)?$")


@dataclass(frozen=True, slots=True)
class Import:
    """One import line. `ref` is a name, or a path from the root when it begins with `/`. `names`
    are what may be modules below it; in Rust, what else the line imports."""

    lang: str
    ref: str
    names: tuple[str, ...] = ()


def read_import(lang: str, path: str, text: str) -> list[Import]:
    """What one line of a file imports; nothing when that cannot be told from the line."""
    match lang:
        case "py":
            return _python(path, text)
        case "ts" | "js":
            return _script(path, text)
        case "rs":
            return _rust(path, text)
        case "go":
            found = _QUOTED.search(text)
            return [Import("go", found[1])] if found else []
        case "java":
            found = re.match(r"^import\s+(?:static\s+)?([\w.]+)", text)
            return [Import("java", found[1])] if found else []
        case "c":
            found = _QUOTED.search(text)
            return [Import("c", join("/", dirname(path), found[1]))] if found else []
        case "rb":
            found = _QUOTED.search(text)
            relative = "require_relative" in text
            return [Import("rb", _rooted(dirname(path), found[1]))] if found and relative else []
        case _:
            return []


def _python(path: str, text: str) -> list[Import]:
    code = text.split("#", 1)[0]
    found = _FROM.match(code)
    if found is None:
        plain = _IMPORT.match(code)
        return [Import("py", part.split()[0]) for part in plain[1].split(",")] if plain else []
    base, listed = found[1], found[2].strip().strip("()\\").strip()
    names = tuple(
        sorted(
            n for part in listed.split(",") if (n := part.split(" as ")[0].strip()).isidentifier()
        )
    )
    low = tuple(n for n in names if n[:1].islower() or n[:1] == "_")
    # A name in capitals is no module; one that is left stands for all of them.
    names = low if len(low) == len(names) else (*low, "*")
    if not base.startswith("."):
        return [Import("py", base, names)]
    dots = len(base) - len(base.lstrip("."))
    folder = dirname(path)
    for _ in range(dots - 1):
        folder = dirname(folder)
    rest = base[dots:].replace(".", "/")
    return [Import("py", "/" + join(folder, rest).strip("/"), names)]


def _rooted(folder: str, ref: str) -> str:
    path = normpath(join("/", folder, ref))
    return path if path != "/" else "/."


def _script(path: str, text: str) -> list[Import]:
    out = []
    for ref in dict.fromkeys(_SPECIFIER.findall(text)):
        out.append(Import("ts", _rooted(dirname(path), ref) if ref.startswith(".") else ref))
    return out


def _rust(path: str, text: str) -> list[Import]:
    """One import with several ends, so that a line counts once for each module however many names
    it takes from it."""
    found = _USE.match(text)
    if found is None:
        return []
    ends = []
    root, own = rust_place(path)
    for parts in _use_paths(found[1]):
        if not parts or parts[0] in ("std", "core", "alloc"):
            continue
        if parts[0] == "crate":
            ends.append("::".join([f"/{root}", *parts[1:]]))
        elif parts[0] in ("super", "self"):
            if (
                text[:1].isspace()
            ):  # in a module within the file, or in a function: which one, the line does not tell
                continue
            place = list(own)
            while parts and parts[0] in ("super", "self"):
                place = place[:-1] if parts[0] == "super" else place
                parts = parts[1:]
            ends.append("::".join([f"/{root}", *place, *parts]))
        else:
            ends.append("::".join(parts))
    ends = list(dict.fromkeys(ends))
    return [Import("rs", ends[0], tuple(ends[1:]))] if ends else []


def _use_paths(text: str) -> list[list[str]]:
    """`a::{b::C, d}` as paths; a brace that is not closed on the line gives what stands before it
    and nothing more."""
    head, brace, rest = text.partition("{")
    prefix = [p for p in re.split(r"::", head.strip().rstrip(":")) if p]
    if not brace:
        return [[p.split(" as ")[0].strip() for p in prefix]]
    if not rest.rstrip().endswith("}"):
        return []
    depth, item, items = 0, "", []
    for c in rest.rstrip()[:-1]:
        if c == "," and not depth:
            items.append(item)
            item = ""
            continue
        depth += (c == "{") - (c == "}")
        item += c
    out: list[list[str]] = []
    for one in [*items, item]:
        if one.strip():
            out += [[*prefix, *path] for path in _use_paths(one.strip())]
    return out


def rust_place(path: str) -> tuple[str, list[str]]:
    """The root of a file's crate (its `src` folder) and the module that the file is."""
    parts = path.split("/")
    at = max((i for i, p in enumerate(parts[:-1]) if p == "src"), default=-1)
    root, rest = "/".join(parts[: at + 1]), parts[at + 1 :]
    rest[-1] = splitext(rest[-1])[0]
    if rest[-1] in ("mod", "lib", "main"):
        rest = rest[:-1]
    return root, rest
