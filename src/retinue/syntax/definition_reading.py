"""Finds the definitions of a file: whole nodes with their names, nested as in the source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retinue.syntax.case_rules import marks_test
from retinue.syntax.definition_names import bases, declared, holder_name, name_node, own_owner, text
from retinue.syntax.doc_comments import CommentLines, docstring
from retinue.syntax.facts import CALLABLE_KINDS, TYPE_KINDS, DefinitionSite

if TYPE_CHECKING:
    from tree_sitter import Node

ORDER = (
    "interface",
    "enum",
    "annotation",
    "record",
    "struct",
    "union",
    "trait",
    "class",
    "method",
    "function",
    "inner",
    "macro",
    "module",
    "namespace",
    "type",
)
"""A node that has two kinds is what comes first here."""
BETTER_NAMED = ("variable_declarator", "assignment_expression", "pair")
NOT_DEFINED = ("delete_method_clause", "default_method_clause")
BODY_TYPES = ("function_body", "class_body", "enum_class_body", "body_statement")
PROPERTY = re.compile(rb"@(?:\w+\.)*(?:cached_)?property\b|@\w+\.(?:setter|getter|deleter)\b")
NO_OWNERS = frozenset(("module", "namespace", "macro", "type"))


@dataclass(slots=True)
class _Entry:
    kind: str
    node: Node
    name: Node | None
    start: int
    stop: int


def definitions(
    language: str, data: bytes, captures: dict[str, list[Node]]
) -> tuple[DefinitionSite, ...]:
    entries = _entries(captures)
    entries.sort(key=lambda e: (e.start, -e.stop))
    comments = CommentLines(data, captures.get("comment", ()), captures.get("attribute", ()))
    heads = _decorated(captures.get("decorated", ()))
    stack: list[tuple[_Entry, str]] = []
    out: list[DefinitionSite] = []
    for entry in entries:
        while stack and stack[-1][0].stop <= entry.start:
            stack.pop()
        owner, nearest = _owner(language, stack)
        name = text(entry.name) if entry.name is not None else holder_name(entry.node)
        if entry.name is not None:
            one = _site(language, data, entry, owner, nearest, heads, comments)
            out.append(one)
            owner = one.owner
        stack.append((entry, f"{owner}.{name}" if owner else name))
    return tuple(sorted(out, key=lambda d: (d.start, -d.stop)))


def _entries(captures: dict[str, list[Node]]) -> list[_Entry]:
    out: list[_Entry] = []
    starts: set[int] = set()
    for kind in ORDER:
        for node in captures.get(kind, ()):
            if kind == "inner" and node.parent is not None and node.parent.type in BETTER_NAMED:
                continue
            if any(c.type in NOT_DEFINED for c in node.children):
                continue
            for name in _names(node):
                if name.start_byte not in starts:
                    starts.add(name.start_byte)
                    real = "function" if kind == "inner" else kind
                    out.append(_Entry(real, node, name, node.start_byte, node.end_byte))
    for kind in ("holder", "anonymous"):
        out += [_Entry(kind, n, None, n.start_byte, n.end_byte) for n in captures.get(kind, ())]
    return out


def _names(node: Node) -> list[Node]:
    """One `typedef` may declare several."""
    if node.type == "type_definition":
        each = [declared(n) for n in node.children_by_field_name("declarator")]
        return [n for n in each if n is not None]
    name = name_node(node)
    if name is None and node.type == "companion_object":
        name = next((c for c in node.children if c.type == "companion"), None)
    return [name] if name is not None and name.end_byte > name.start_byte else []


def _owner(language: str, stack: list[tuple[_Entry, str]]) -> tuple[str, str]:
    """The type around, and the kind of the nearest thing around that is more than a name space."""
    for entry, name in reversed(stack):
        if entry.kind in NO_OWNERS and (entry.kind, language) != ("module", "ruby"):
            continue
        if entry.kind in CALLABLE_KINDS:
            return "", "function"
        return name, "anonymous" if entry.kind == "anonymous" else "type"
    return "", ""


def _decorated(nodes: list[Node] | tuple[()]) -> dict[int, int]:
    """Where the decorators of a definition begin, by where the definition does."""
    out: dict[int, int] = {}
    for node in nodes:
        inner = node.child_by_field_name("definition")
        if inner is not None:
            out[inner.start_byte] = node.start_byte
    return out


def _body(node: Node) -> Node | None:
    direct = node.child_by_field_name("body")
    if direct is not None:
        return direct
    value = node.child_by_field_name("value") or node.child_by_field_name("right")
    if value is not None and (inner := value.child_by_field_name("body")) is not None:
        return inner
    return next((c for c in node.named_children if c.type in BODY_TYPES), None)


def _site(
    language: str,
    data: bytes,
    entry: _Entry,
    owner: str,
    nearest: str,
    heads: dict[int, int],
    comments: CommentLines,
) -> DefinitionSite:
    node, name, kind = entry.node, entry.name, entry.kind
    assert name is not None
    own = own_owner(node, name) if kind in CALLABLE_KINDS else ""
    if kind == "function" and nearest in ("type", "anonymous") and language != "bash":
        kind = "method"
    if kind == "function" and own and language == "cpp":
        kind = "method"
    body = _body(node)
    start = heads.get(node.start_byte, node.start_byte)
    middle = body.start_byte if body is not None else node.end_byte
    head = data[start:middle]
    if language == "python":
        doc, doc_line = docstring(body)
    else:
        doc, doc_line = comments.above(node.start_point[0])
    title = ("" if nearest == "anonymous" else own or owner).strip(".")
    is_known = kind in TYPE_KINDS
    return DefinitionSite(
        kind=kind,
        name=text(name),
        line=name.start_point[0] + 1,
        end=_end_line(node),
        owner=title,
        start=start,
        body=middle,
        stop=node.end_byte,
        doc=doc,
        doc_line=doc_line,
        bases=bases(node, language) if is_known else (),
        marks=_marks(language, data, entry, kind, nearest, body is None, head, title),
    )


def _end_line(node: Node) -> int:
    """A macro's node ends at the beginning of the next line."""
    row, column = node.end_point[0], node.end_point[1]
    return row if column == 0 and row > node.start_point[0] else row + 1


def _marks(
    language: str,
    data: bytes,
    entry: _Entry,
    kind: str,
    nearest: str,
    is_bare: bool,
    head: bytes,
    owner: str,
) -> tuple[str, ...]:
    marks = []
    if nearest == "anonymous":
        marks.append("anonymous")
    if is_bare and kind in CALLABLE_KINDS and language not in ("ruby", "bash"):
        marks.append("declared")
    end = entry.name.end_byte if entry.name is not None else entry.start
    if data[end : end + 1] in (b"<", b"["):
        marks.append("generic")
    if nearest == "function":
        marks.append("local")
    if language == "python" and head.startswith(b"@") and PROPERTY.search(head):
        marks.append("property")
    if language == "c" and re.search(rb"\bstatic\b", head[: max(0, end - entry.start)]):
        marks.append("static")
    name = "" if entry.name is None else text(entry.name)
    if marks_test(language, kind, name, owner, head, data[entry.start : entry.stop]):
        marks.append("test")
    return tuple(marks)
