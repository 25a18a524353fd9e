"""Reads import statements as a module and its imported names, for each language."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from retinue.syntax.definition_names import text
from retinue.syntax.facts import ImportSite

if TYPE_CHECKING:
    from tree_sitter import Node

_QUOTES = "\"'`"
_WORD = re.compile(r"[\w$]+")


def imports(language: str, node: Node) -> Iterator[ImportSite]:
    line = node.start_point[0] + 1
    for module, names in _READERS.get(language, _nothing)(node):
        if module:
            yield ImportSite(module, line, tuple(dict.fromkeys(names)))


Found = Iterator[tuple[str, list[str]]]


def _nothing(node: Node) -> Found:
    return iter(())


def _python(node: Node) -> Found:
    module = node.child_by_field_name("module_name")
    names = node.children_by_field_name("name")
    imported_names = [text(n.child_by_field_name("name") or n) for n in names]
    if node.type == "import_statement":
        yield from ((name, []) for name in imported_names)
    elif module is not None:
        if any(c.type == "wildcard_import" for c in node.named_children):
            imported_names.append("*")
        yield text(module).replace(" ", ""), imported_names


def _script(node: Node) -> Found:
    """JavaScript and TypeScript: import, export from, require."""
    source = node.child_by_field_name("source")
    if source is None:
        arguments = node.child_by_field_name("arguments")
        first = arguments.named_children[0] if arguments and arguments.named_children else None
        yield text(first).strip(_QUOTES), []
        return
    names: list[str] = []
    for clause in node.named_children:
        if clause.type == "import_clause":
            for part in clause.named_children:
                if part.type == "identifier":
                    names.append("default")
                elif part.type == "namespace_import":
                    names.append("*")
                else:
                    names += _specifiers(part)
        elif clause.type == "export_clause":
            names += _specifiers(clause)
    if node.type == "export_statement" and not names:
        names = ["*"]
    yield text(source).strip(_QUOTES), names


def _specifiers(node: Node) -> list[str]:
    return [text(s.child_by_field_name("name")).strip(_QUOTES) for s in node.named_children]


def _go(node: Node) -> Found:
    yield text(node.child_by_field_name("path")).strip(_QUOTES), []


def _rust(node: Node) -> Found:
    """`use a::{b, c::D}` is `a` with b and `a::c` with D; `mod x;` is written as `mod x`."""
    if node.type == "mod_item":
        yield f"mod {text(node.child_by_field_name('name'))}", []
        return
    flat: dict[str, list[str]] = {}
    _use(node.child_by_field_name("argument"), "", flat)
    yield from flat.items()


def _use(node: Node | None, before: str, out: dict[str, list[str]]) -> None:
    if node is None:
        return
    match node.type:
        case "use_as_clause":
            _use(node.child_by_field_name("path"), before, out)
        case "scoped_use_list":
            path = text(node.child_by_field_name("path"))
            inner = f"{before}::{path}" if before and path else before or path
            _use(node.child_by_field_name("list"), inner, out)
        case "use_list":
            for child in node.named_children:
                _use(child, before, out)
        case "use_wildcard":
            path = text(node).removesuffix("*").rstrip(": ")
            out.setdefault(f"{before}::{path}".strip(":"), []).append("*")
        case _:
            whole = f"{before}::{text(node)}" if before else text(node)
            path, _, name = re.sub(r"\s+", "", whole).removeprefix("::").rpartition("::")
            out.setdefault(path or name, []).extend([name] if path else [])


def _include(node: Node) -> Found:
    yield text(node.child_by_field_name("path")).strip(), []


def _dotted(node: Node) -> Found:
    """Java and Kotlin: the package, and the last name."""
    words = re.sub(r"^\s*import\s+(?:static\s+)?|\s+as\s+\w+|[;\s]", "", text(node))
    module, _, name = words.rpartition(".")
    yield module, [name]


def _php(node: Node) -> Found:
    body = re.sub(r"^\s*use\s+(?:function\s+|const\s+)?|;\s*$", "", text(node))
    prefix, brace, inner = body.partition("{")
    for part in (inner.rstrip("}\n ") if brace else body).split(","):
        whole = (prefix if brace else "") + re.sub(r"\s+as\s+\w+", "", part)
        module, _, name = re.sub(r"\s+", "", whole).strip("\\").rpartition("\\")
        if name:
            yield module or name, [name]


def _c_sharp(node: Node) -> Found:
    words = re.sub(r"^\s*(?:global\s+)?using\s+(?:static\s+)?(?:\w+\s*=\s*)?|[;\s]", "", text(node))
    yield words, []


def _ruby(node: Node) -> Found:
    arguments = node.child_by_field_name("arguments")
    path = text(arguments.named_children[0]).strip(_QUOTES) if arguments else ""
    is_near = text(node.child_by_field_name("method")) == "require_relative"
    yield (f"./{path}" if is_near and path else path), []


def _bash(node: Node) -> Found:
    words = [text(c) for c in node.named_children[1:2]]
    yield (words[0].strip(_QUOTES) if words else ""), []


_READERS: dict[str, Callable[[Node], Found]] = {
    "python": _python,
    "javascript": _script,
    "typescript": _script,
    "tsx": _script,
    "go": _go,
    "rust": _rust,
    "c": _include,
    "cpp": _include,
    "java": _dotted,
    "kotlin": _dotted,
    "php": _php,
    "c_sharp": _c_sharp,
    "ruby": _ruby,
    "bash": _bash,
}
