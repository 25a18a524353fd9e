"""Which file an import names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from posixpath import dirname, join, normpath

from retinue.models.explorer.imports import Import

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
