"""Resolves imports to files of the tree. What does not lead to a file of the tree counts nowhere,
so nothing is guessed: where two files could be meant, none is."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache, cached_property
from posixpath import basename, dirname, join, normpath

from retinue.syntax.facts import ImportSite
from retinue.syntax.source_tree import SourceTree

SCRIPT_ENDINGS = (".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs", ".d.ts")


class FileResolver:
    """The files of one tree by the ways in which imports can name them."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._paths = {p for p, f in tree.files.items() if f.facts is not None}
        self._by_name: dict[str, list[str]] = defaultdict(list)
        self._in_folder: dict[str, list[str]] = defaultdict(list)
        for path in sorted(self._paths):
            self._by_name[basename(path)].append(path)
            self._in_folder[dirname(path)].append(path)
        self._ways: dict[str, Callable[[str, ImportSite], set[str]]] = {
            "python": self._python,
            "javascript": self._script,
            "typescript": self._script,
            "tsx": self._script,
            "go": self._go,
            "rust": self._rust,
            "c": self._include,
            "cpp": self._include,
            "java": self._dotted,
            "kotlin": self._dotted,
            "php": self._php,
            "ruby": self._ruby,
            "bash": self._bash,
        }

    def files(self, path: str, site: ImportSite) -> tuple[str, ...]:
        """The files that an import in the file `path` names, sorted, without itself."""
        way = self._ways.get(self._tree.files[path].language)
        return tuple(sorted(way(path, site) - {path})) if way is not None else ()

    # Python

    @cached_property
    def _tops(self) -> list[str]:
        """Folders from which modules are named: those that are no packages, the highest first."""
        folders = {dirname(p) for p in self._paths if p.endswith(".py")}
        free = [f for f in folders if join(f, "__init__.py") not in self._paths]
        above = {dirname(f) for f in folders if join(f, "__init__.py") in self._paths}
        free += [f for f in above if join(f, "__init__.py") not in self._paths]
        return ["", *sorted(set(free) - {""}, key=lambda f: (f.count("/"), f))]

    def _module(self, base: str, dotted: str) -> str:
        path = join(base, dotted.replace(".", "/")) if dotted else base
        for name in (f"{path}.py", join(path, "__init__.py"), f"{path}.pyi"):
            if name in self._paths:
                return name
        return ""

    @cached_property
    def _absolute(self) -> Callable[[str], str]:
        @cache
        def found(dotted: str) -> str:
            return next((f for top in self._tops if (f := self._module(top, dotted))), "")

        return found

    def _python(self, path: str, site: ImportSite) -> set[str]:
        dots = len(site.module) - len(site.module.lstrip("."))
        rest = site.module[dots:]
        base = normpath(join(dirname(path), *[".."] * (dots - 1)))

        def look(dotted: str) -> str:
            return self._module(base.removeprefix("."), dotted) if dots else self._absolute(dotted)

        own = look(rest) if rest or dots else ""
        paths = {look(f"{rest}.{name}".strip(".")) or own for name in site.names} or {own}
        return paths - {""}

    # JavaScript and TypeScript

    @cached_property
    def _packages(self) -> dict[str, str]:
        """Folders of packages in the tree by the name in their manifest."""
        out: dict[str, str] = {}
        for path, text in self._tree.texts.items():
            if basename(path) == "package.json":
                try:
                    name = json.loads(text).get("name")
                except (ValueError, AttributeError, RecursionError):
                    continue
                if isinstance(name, str) and name:
                    out[name] = dirname(path)
        return out

    def _script(self, path: str, site: ImportSite) -> set[str]:
        word = site.module
        if word.startswith("."):
            return self._script_file(normpath(join(dirname(path), word)))
        head = "/".join(word.split("/")[: 2 if word.startswith("@") else 1])
        if head not in self._packages:
            return set()
        folder, rest = self._packages[head], word[len(head) + 1 :]
        for start in (folder, join(folder, "src")):
            if paths := self._script_file(normpath(join(start, rest))):
                return paths
        return set()

    def _script_file(self, path: str) -> set[str]:
        path = "" if path == "." else path
        stem = re.sub(r"\.([cm]?)js(x?)$", "", path)
        names = [path, *(path + e for e in SCRIPT_ENDINGS), *(stem + e for e in SCRIPT_ENDINGS)]
        names += [join(path, f"index{e}") for e in SCRIPT_ENDINGS]
        return next(({n} for n in names if n in self._paths), set())

    # Go and Rust

    @cached_property
    def _go_modules(self) -> list[tuple[str, str]]:
        out = []
        for path, text in self._tree.texts.items():
            if basename(path) == "go.mod" and (m := re.search(r"^module\s+(\S+)", text, re.M)):
                out.append((m[1].strip('"'), dirname(path)))
        return sorted(out, key=lambda item: (-len(item[0]), item[0]))

    def _go(self, path: str, site: ImportSite) -> set[str]:
        for module, folder in self._go_modules:
            if site.module == module or site.module.startswith(f"{module}/"):
                place = join(folder, site.module[len(module) + 1 :]).rstrip("/")
                inside = self._in_folder.get(place, ())
                return {p for p in inside if p.endswith(".go") and not p.endswith("_test.go")}
        return set()

    @cached_property
    def _crates(self) -> dict[str, str]:
        out: dict[str, str] = {}
        for path, text in self._tree.texts.items():
            if basename(path) == "Cargo.toml":
                match = re.search(r"^\[package\][^\[]*?^name\s*=\s*\"([^\"]+)\"", text, re.M)
                if match:
                    out[match[1].replace("-", "_")] = dirname(path)
        return out

    def _crate_root(self, path: str) -> str:
        """The folder of the file from which a crate's modules are named."""
        folder = dirname(path)
        while True:
            if any(join(folder, n) in self._paths for n in ("lib.rs", "main.rs")):
                return folder
            if not folder:
                return dirname(path)
            folder = dirname(folder)

    def _rust(self, path: str, site: ImportSite) -> set[str]:
        if site.module.startswith("mod "):
            return self._rust_module(_rust_folder(path), [site.module[4:]])
        head, *rest = site.module.split("::")
        root = self._crate_root(path)
        if head == "crate":
            return self._rust_module(root, [*rest, *site.names[:1]], root)
        if head in ("self", "super"):
            folder = _rust_folder(path)
            for _ in [p for p in (head, *rest) if p == "super"]:
                folder = dirname(folder)
            rest = [p for p in rest if p != "super"]
            return self._rust_module(folder, [*rest, *site.names[:1]], folder)
        if head in self._crates:
            start = join(self._crates[head], "src")
            return self._rust_module(start, [*rest, *site.names[:1]], start)
        return self._rust_module(root, [head, *rest, *site.names[:1]])

    def _rust_module(self, folder: str, parts: list[str], root: str | None = None) -> set[str]:
        """The file of the longest part of a path that is a module; else the root's own file."""
        for n in range(len(parts), 0, -1):
            place = join(folder, *parts[:n])
            for name in (f"{place}.rs", join(place, "mod.rs")):
                if name in self._paths:
                    return {name}
        names = () if root is None else ("lib.rs", "main.rs", "mod.rs")
        return next(({p} for n in names if (p := join(folder, n)) in self._paths), set())

    # languages whose imports are paths or names with dots

    def _include(self, path: str, site: ImportSite) -> set[str]:
        word = site.module.strip('"<>')
        if site.module.startswith('"'):
            near = normpath(join(dirname(path), word))
            if near in self._paths:
                return {near}
        return self._only(word, is_exact=site.module.startswith("<"))

    def _only(self, word: str, *, is_exact: bool = False) -> set[str]:
        """The one file whose path ends so; where two do, none."""
        word = normpath(word).removeprefix("../").lstrip("/")
        named = self._by_name.get(basename(word), [])
        ending = [p for p in named if p == word or p.endswith(f"/{word}")]
        if is_exact and "/" not in word:
            return set()
        if not ending and not is_exact:
            ending = named
        return set(ending) if len(ending) == 1 else set()

    def _dotted(self, path: str, site: ImportSite) -> set[str]:
        ending = ".kt" if path.endswith((".kt", ".kts")) else ".java"
        place = site.module.replace(".", "/")
        if site.names == ("*",):
            folders = [f for f in self._in_folder if f == place or f.endswith(f"/{place}")]
            return {p for f in folders for p in self._in_folder[f] if p.endswith(ending)}
        for words in ([place, *site.names], [place]):
            name = "/".join(words) + ending
            named = self._by_name.get(basename(name), ())
            if paths := {p for p in named if p == name or p.endswith(f"/{name}")}:
                return paths
        return set()

    def _php(self, path: str, site: ImportSite) -> set[str]:
        parts = [*site.module.split("\\"), *site.names]
        named = self._by_name.get(f"{parts[-1]}.php", [])
        for n in range(len(parts) - 1):  # a namespace may be a folder of another name
            ending = "/".join(parts[n:]) + ".php"
            paths = [p for p in named if p == ending or p.endswith(f"/{ending}")]
            if paths:
                return set(paths) if len(paths) == 1 else set()
        return set(named) if len(named) == 1 else set()

    def _ruby(self, path: str, site: ImportSite) -> set[str]:
        name = site.module if site.module.endswith(".rb") else f"{site.module}.rb"
        if name.startswith("./"):
            near = normpath(join(dirname(path), name))
            return {near} & self._paths
        for top in ("lib", ""):
            if join(top, name) in self._paths:
                return {join(top, name)}
        named = self._by_name.get(basename(name), ())
        paths = [p for p in named if p.endswith(f"/{name}")]
        return set(paths) if len(paths) == 1 else set()

    def _bash(self, path: str, site: ImportSite) -> set[str]:
        if "$" in site.module:
            return self._only(basename(site.module)) if "$" not in basename(site.module) else set()
        near = normpath(join(dirname(path), site.module))
        return {near} & self._paths


def _rust_folder(path: str) -> str:
    """The folder of the modules below a file."""
    name = basename(path)
    is_root = name in ("lib.rs", "main.rs", "mod.rs")
    return dirname(path) if is_root else path.removesuffix(".rs")
