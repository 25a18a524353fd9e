"""The code of a file without comments and docstrings, to tell whether two versions differ only in
words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.syntax.grammars import parse

if TYPE_CHECKING:
    from tree_sitter import Node

Span = tuple[int, int]


class SetValue(Struct, frozen=True, array_like=True):
    """What a name is set to in a module or a class: the text, its line and the bytes of the
    statement."""

    owner: str
    name: str
    text: str
    line: int
    start: int
    stop: int


class CodeTokens(Struct, frozen=True, array_like=True):
    """The leaves of a syntax tree by the byte where each begins; `lines` are those on which code
    begins. `values` are of Python only."""

    starts: list[int] = []
    texts: list[bytes] = []
    lines: set[int] = set()
    values: list[SetValue] = []

    def between(self, span: Span, without: Iterable[Span] = ()) -> list[bytes]:
        """The tokens that begin in a span of bytes, without those in other spans."""
        first, last = bisect_left(self.starts, span[0]), bisect_left(self.starts, span[1])
        left_out = list(without)
        return [
            self.texts[n]
            for n in range(first, last)
            if not any(a <= self.starts[n] < b for a, b in left_out)
        ]


def code_tokens(language: str, data: bytes) -> CodeTokens:
    """The tokens of a file. It loads a grammar: for the workers."""
    root = parse(language, data).root_node
    leaves = list(_leaves(root, language))
    return CodeTokens(
        [node.start_byte for node in leaves],
        [node.text or b"" for node in leaves],
        {node.start_point[0] + 1 for node in leaves},
        list(_values(root)) if language == "python" else [],
    )


def _leaves(root: Node, language: str) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if "comment" in node.type or (language == "python" and _is_docstring(node)):
            continue
        if node.child_count == 0:
            yield node
        else:
            waiting.extend(reversed(node.children))


def _is_docstring(node: Node) -> bool:
    if node.type != "expression_statement" or node.named_child_count != 1:
        return False
    return node.named_children[0].type == "string"


def _values(root: Node) -> Iterator[SetValue]:
    """Assignments to plain names, directly in the module or in a class."""
    waiting: list[tuple[Node, str]] = [(root, "")]
    while waiting:
        block, owner = waiting.pop()
        for child in block.named_children:
            node = child
            if node.type == "decorated_definition":
                node = node.child_by_field_name("definition") or node
            if node.type == "class_definition":
                name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
                if name is not None and body is not None:
                    title = _text(name)
                    waiting.append((body, f"{owner}.{title}" if owner else title))
            elif node.type == "expression_statement" and node.named_children:
                yield from _assignment(node, owner)


def _assignment(node: Node, owner: str) -> Iterator[SetValue]:
    inner = node.named_children[0]
    target, right = inner.child_by_field_name("left"), inner.child_by_field_name("right")
    if inner.type == "assignment" and target is not None and target.type == "identifier":
        value_text = " ".join(_text(right).split()) if right is not None else ""
        line = node.start_point[0] + 1
        yield SetValue(owner, _text(target), value_text, line, node.start_byte, node.end_byte)


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
