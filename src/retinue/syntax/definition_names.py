"""The name of a definition, the type it belongs to, and what it extends, for each grammar."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_NAMES = frozenset(
    (
        "identifier",
        "type_identifier",
        "field_identifier",
        "operator_name",
        "destructor_name",
        "operator_cast",
        "primitive_type",
        "template_function",
    )
)
_LAST = re.compile(r"[\w$]+$")
_HERITAGE = {
    "python": ("superclasses",),
    "javascript": ("class_heritage",),
    "typescript": ("class_heritage", "extends_type_clause"),
    "tsx": ("class_heritage", "extends_type_clause"),
    "java": ("superclass", "super_interfaces", "extends_interfaces"),
    "php": ("base_clause", "class_interface_clause"),
    "cpp": ("base_class_clause",),
    "c_sharp": ("base_list",),
    "kotlin": ("delegation_specifiers",),
    "ruby": ("superclass",),
}


def text(node: Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode("utf-8", "replace")


def name_node(node: Node) -> Node | None:
    """The node with the name of a definition."""
    match node.type:
        case "assignment_expression":
            target = node.child_by_field_name("left")
            property_ = None if target is None else target.child_by_field_name("property")
            return property_ or target
        case "pair":
            return node.child_by_field_name("key")
        case "function_definition" | "type_definition" if node.child_by_field_name("declarator"):
            return declared(node.child_by_field_name("declarator"))
        case "type_alias" | "companion_object":  # of Kotlin; the alias of Go has the field
            return node.child_by_field_name("name") or _first(node, "identifier")
    return node.child_by_field_name("name")


def _first(node: Node, kind: str) -> Node | None:
    return next((c for c in node.named_children if c.type == kind), None)


def declared(node: Node | None) -> Node | None:
    """The name inside a declarator of C: through pointers, parentheses, arrays, qualified names."""
    while node is not None and node.type not in _NAMES:
        below = node.child_by_field_name("declarator")
        if below is None and node.type == "qualified_identifier":
            below = node.child_by_field_name("name")
        node = below or next((c for c in node.named_children if _is_declarator(c)), None)
    if node is not None and node.type == "template_function":
        return node.child_by_field_name("name")
    return node


def _is_declarator(node: Node) -> bool:
    return "declarator" in node.type or node.type in _NAMES or node.type == "qualified_identifier"


def own_owner(node: Node, name: Node) -> str:
    """The type that a definition names itself as the one it belongs to: a receiver, a qualifier."""
    match node.type:
        case "method_declaration" if (receiver := node.child_by_field_name("receiver")) is not None:
            match = re.search(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\])?\s*\)\s*$", text(receiver))
            return match[1] if match else ""
        case "assignment_expression":
            target = node.child_by_field_name("left")
            owner = None if target is None else target.child_by_field_name("object")
            return text(owner) if owner is not None and len(text(owner)) <= 60 else ""
        case "singleton_method":
            receiver_name = text(node.child_by_field_name("object"))
            return "" if receiver_name == "self" else receiver_name
        case "function_definition":
            return _qualifier(node, name)
    return ""


def _qualifier(node: Node, name: Node) -> str:
    """`A::B` of `int A::B::f() {}` in C++."""
    at, parts = node.child_by_field_name("declarator"), []
    while at is not None and at.start_byte <= name.start_byte:
        if at.type == "qualified_identifier":
            if scope := text(at.child_by_field_name("scope")):
                parts.append(re.sub(r"<.*>", "", scope, flags=re.S))
            at = at.child_by_field_name("name")
        else:
            at = at.child_by_field_name("declarator") or next(
                (c for c in at.named_children if _is_declarator(c)), None
            )
    return ".".join(parts)


def holder_name(node: Node) -> str:
    """The type of an `impl` block; other holders have no name of their own."""
    if node.type != "impl_item":
        return ""
    return re.sub(r"<.*", "", text(node.child_by_field_name("type")), flags=re.S).strip()


def bases(node: Node, language: str) -> tuple[str, ...]:
    """The last names of the types that a definition extends or implements."""
    out: list[str] = []
    for child in node.named_children:
        field = child.type
        if language == "python":
            field = "superclasses" if child.type == "argument_list" else ""
        if field in _HERITAGE.get(language, ()):
            out += _base_names(child)
    return tuple(dict.fromkeys(out))


def _base_names(node: Node) -> list[str]:
    """Names are cut at what is in brackets: `Base[T]`, `Base<T>`, `Base(1)`."""
    inner = text(node)
    inner = re.sub(r"^[\s(:<]*(?:extends|implements)?\s+|^\(|\)$", "", inner.strip())
    flat, depth = [], 0
    for char in inner:
        depth += (char in "([<{") - (char in ")]>}")
        if depth == 0 and char not in ")]>}":
            flat.append(char)
    parts = re.split(r",|\bimplements\b|\bextends\b|\bwith\b", "".join(flat))
    names = [p.split("=")[0].strip() if "=" not in p else "" for p in parts]
    matches = (_LAST.search(n.rstrip()) for n in names if n)
    return [m[0] for m in matches if m]
