"""Import lines of several languages, first as they stand in a file (`read_import`), then as files
of the tree (`Resolver`). What is not part of the tree resolves to nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from posixpath import dirname, join, normpath, splitext

_FROM = re.compile(r"^\s*from\s+([.\w]+)\s+import\s+(.*)$")
_IMPORT = re.compile(r"^\s*import\s+([\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*[\w.]+(?:\s+as\s+\w+)?)*)")
_QUOTED = re.compile(r"""['"]([^'"]+)['"]""")
_SPECIFIER = re.compile(
    r"""(?:\bfrom\s*|^\s*import\s*|\brequire\(\s*|\bimport\(\s*)['"]([^'"]+)['"]"""
)
_USE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+(.+?);?\s*(?://.*)?$")
_TS_ENDS = (
    ".ts",
    ".tsx",
    ".d.ts",
    ".mts",
    ".cts",
    ".js",
    ".jsx",
    ".mjs",
    ".cjs",
    ".vue",
    ".svelte",
    ".json",
)


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


class Resolver:
    """Which files of the tree an import means. `crates` are folders by the names of their packages,
    `go_module` is the path that packages of this tree begin with; for Go the answer is a folder."""

    def __init__(
        self,
        files: Iterable[str],
        crates: dict[str, str] | None = None,
        go: dict[str, str] | None = None,
    ):
        self.files = set(files)
        self.crates = crates or {}
        self.go = go or {}
        self.folders = {dirname(f) for f in self.files if f.endswith(".go")}
        self.python = python_modules(self.files)
        self._tails: dict[str, list[str]] = {}
        for path in self.files:
            if path.endswith((".java", ".kt", ".h", ".hpp", ".hh")):
                self._tails.setdefault(path.rsplit("/", 1)[-1], []).append(path)

    def resolve(self, item: Import) -> set[str]:
        match item.lang:
            case "py":
                return self._python(item)
            case "ts":
                return self._some(self._script(item.ref))
            case "rs":
                return {
                    found
                    for ref in (item.ref, *item.names)
                    if (found := self._rust(ref)) is not None
                }
            case "go":
                return self._some(self._go(item.ref))
            case "java":
                return self._some(self._tail(item.ref.replace(".", "/"), (".java", ".kt")))
            case "c":
                return self._some(self._header(item.ref))
            case "rb":
                return self._some(self._existing(item.ref.lstrip("/"), ("", ".rb")))
            case _:
                return set()

    def _some(self, path: str | None) -> set[str]:
        return {path} if path is not None else set()

    def _python(self, item: Import) -> set[str]:
        out = set()
        for name in item.names or ("*",):
            found = None if name == "*" else self._module(item.ref, name)
            found = found or self._module(item.ref, "")
            if found is not None:
                out.add(found)
        return out

    def _module(self, ref: str, name: str) -> str | None:
        if ref.startswith("/"):
            path = join(ref.lstrip("/"), name) if name else ref.lstrip("/")
            return self._existing(path, (".py", "/__init__.py", ".pyi"))
        dotted = f"{ref}.{name}" if name else ref
        while dotted:
            if dotted in self.python:
                return self.python[dotted]
            if name or "." not in dotted:
                return None
            dotted = dotted.rsplit(".", 1)[0]
        return None

    def _existing(self, path: str, ends: Iterable[str]) -> str | None:
        return next((path + e for e in ends if path + e in self.files), None)

    def _script(self, ref: str) -> str | None:
        path = ref.lstrip("/") if ref.startswith("/") else None
        if path is None:
            for name, folder in self.crates.items():
                if ref == name or ref.startswith(f"{name}/"):
                    rest = ref[len(name) :].lstrip("/")
                    places = (
                        [join(folder, "src", rest), join(folder, rest)]
                        if rest
                        else [join(folder, "src/index")]
                    )
                    return next(
                        (f for p in places if (f := self._script("/" + p.rstrip("/")))), None
                    )
            if ref.startswith(("@/", "~/")):
                return self._script("/src/" + ref[2:]) or self._script("/" + ref[2:])
            return None
        path = "" if path == "." else path
        if path in self.files:
            return path
        bare = re.sub(r"\.(?:js|mjs|cjs|jsx)$", "", path)
        ends = [*_TS_ENDS, *(f"/index{e}" for e in _TS_ENDS)]
        return self._existing(path, ends) or (self._existing(bare, ends) if bare != path else None)

    def _rust(self, ref: str) -> str | None:
        head, *rest = ref.split("::")
        if head.startswith("/"):
            root = head[1:]
        elif head in self.crates:
            root = join(self.crates[head], "src").lstrip("/")
        else:
            return None
        for n in range(len(rest), 0, -1):
            base = join(root, *rest[:n])
            found = self._existing(base, (".rs", "/mod.rs"))
            if found:
                return found
        return self._existing(join(root, "") if root else "", ("lib.rs", "main.rs"))

    def _go(self, ref: str) -> str | None:
        for module, folder in self.go.items():
            if ref == module or ref.startswith(f"{module}/"):
                path = join(folder, ref[len(module) :].lstrip("/")).strip("/")
                return path if path in self.folders else None
        return None

    def _tail(self, ref: str, ends: Iterable[str]) -> str | None:
        for end in ends:
            path = ref + end
            for found in self._tails.get(path.rsplit("/", 1)[-1], ()):
                if found == path or found.endswith(f"/{path}"):
                    return found
        return None

    def _header(self, ref: str) -> str | None:
        near = normpath(ref).lstrip("/")
        if near in self.files:
            return near
        same = self._tails.get(near.rsplit("/", 1)[-1], [])
        return same[0] if len(same) == 1 else None


def python_modules(files: set[str]) -> dict[str, str]:
    """Files by dotted name: counted from the outermost package, from `src`, and from the root."""
    out: dict[str, str] = {}
    later: list[tuple[str, str]] = []
    tops: dict[str, str] = {"": ""}

    def top_of(folder: str) -> str:
        if folder not in tops:
            tops[folder] = (
                top_of(folder.rpartition("/")[0]) if f"{folder}/__init__.py" in files else folder
            )
        return tops[folder]

    for path in sorted(f for f in files if f.endswith(".py")):
        folder, _, name = path.rpartition("/")
        stem = folder if name == "__init__.py" and folder else path[:-3]
        dotted = stem[len(top_of(folder)) :].strip("/").replace("/", ".")
        if dotted:
            out.setdefault(dotted, path)
        later.append((stem.replace("/", "."), path))
        for mark in ("src/", "lib/", "python/"):
            _, found, tail = f"/{stem}".rpartition(f"/{mark}")
            if found:
                later.append((tail.replace("/", "."), path))
    for dotted, path in later:
        out.setdefault(dotted, path)
    return out
