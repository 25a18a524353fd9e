"""Extracts the facts of one file from its bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.syntax.c_preparation import closed_lines, one_branch
from retinue.syntax.definition_names import text
from retinue.syntax.definition_reading import definitions as read_definitions
from retinue.syntax.doc_comments import docstring, heading
from retinue.syntax.facts import (
    CALLABLE_KINDS,
    CallSite,
    DefinitionSite,
    FileFacts,
    ImportSite,
)
from retinue.syntax.grammars import captured, parse
from retinue.syntax.import_reading import imports
from retinue.syntax.program_start import main_line

if TYPE_CHECKING:
    from tree_sitter import Node

SECOND_TRY: dict[str, Callable[[bytes], tuple[bytes, set[int]]]] = {
    "c": one_branch,
    "cpp": one_branch,
    "c_sharp": one_branch,
    "kotlin": closed_lines,
}
HEADS = frozenset(
    (
        "preproc_include",
        "preproc_call",
        "preproc_def",
        "expression_statement",
        "php_tag",
        "package_declaration",
        "package_header",
        "import_declaration",
        "attribute_item",
        "inner_attribute_item",
    )
)
NAME_KINDS = {"ruby", "c_sharp", "kotlin"}


def file_facts(language: str, data: bytes) -> FileFacts:
    """What one file says. A file that the grammar cannot read whole is tried once more, where
    there is a way to make it easier."""
    first = _facts(language, data)
    if not first.errors or language not in SECOND_TRY:
        return first
    easier, line_numbers = SECOND_TRY[language](data)
    second = _facts(language, easier)
    if second.errors >= first.errors:
        return first
    return _joined(second, first, line_numbers)


def _joined(facts: FileFacts, other: FileFacts, line_numbers: set[int]) -> FileFacts:
    """With what only lines have that were taken out. Calls find their definition again by name."""
    old_definitions = [d for d in facts.definitions]
    added = [d for d in other.definitions if d.line in line_numbers]
    places = {id(d): n for n, d in enumerate(sorted(old_definitions + added, key=_order))}
    maps = (
        {n: places[id(d)] for n, d in enumerate(old_definitions)},
        {n: places[id(d)] for n, d in enumerate(other.definitions) if id(d) in places},
    )
    calls = [replace(c, around=maps[0].get(c.around, -1)) for c in facts.calls]
    calls += [
        replace(c, around=maps[1].get(c.around, -1)) for c in other.calls if c.line in line_numbers
    ]
    return replace(
        facts,
        definitions=tuple(sorted(old_definitions + added, key=_order)),
        calls=tuple(sorted(calls, key=lambda c: (c.line, c.name))),
        imports=_by_line([*facts.imports, *(i for i in other.imports if i.line in line_numbers)]),
        types=other.types,
        doc=other.doc,
        doc_line=other.doc_line,
    )


def _order(one: DefinitionSite) -> tuple[int, int]:
    return one.start, -one.stop


def _by_line(sites: Iterable[ImportSite]) -> tuple[ImportSite, ...]:
    return tuple(sorted(sites, key=lambda s: (s.line, s.module)))


def _facts(language: str, data: bytes) -> FileFacts:
    root = parse(language, data).root_node
    captures = captured(language, root)
    definitions = read_definitions(language, data, captures)
    doc, doc_line = docstring(root) if language == "python" else heading(root, HEADS)
    errors = captures.get("error", [])
    return FileFacts(
        definitions=definitions,
        calls=_calls(captures.get("call", ()), definitions),
        imports=_by_line(i for n in captures.get("import", ()) for i in imports(language, n)),
        cases=_cases(language, captures),
        types=_types(language, captures),
        errors=len(errors),
        error_line=errors[0].start_point[0] + 1 if errors else 0,
        doc=doc,
        doc_line=doc_line,
        main=main_line(language, root, data, definitions, captures),
    )


def _cases(language: str, captures: dict[str, list[Node]]) -> tuple[int, ...]:
    nodes = captures.get("case", [])
    if language == "rust":
        nodes = [n for n in captures.get("attribute", ()) if text(n) == "#[test]"]
    elif language == "bash":
        nodes = [n for n in captures.get("call", ()) if text(n) == "@test"]
    return tuple(n.start_point[0] + 1 for n in nodes)


def _types(language: str, captures: dict[str, list[Node]]) -> dict[str, int]:
    """Names in a type's place. `io::Result` is none of this tree; `crate::Result` is."""
    foreign = set()
    for node in captures.get("scoped", ()):
        name = node.child_by_field_name("name")
        if name is not None and not text(node).startswith(("crate::", "self::", "super::")):
            foreign.add(name.start_byte)
    names = (text(n) for n in captures.get("named", ()) if n.start_byte not in foreign)
    if language in NAME_KINDS:
        names = (n for n in names if n[:1].isupper())
    return dict(sorted(Counter(names).items()))


def _calls(nodes: Sequence[Node], definitions: Sequence[DefinitionSite]) -> tuple[CallSite, ...]:
    """Each call with the innermost definition around it."""
    out: list[CallSite] = []
    stack: list[int] = []
    ahead = 0
    for node in nodes:
        at = node.start_byte
        while ahead < len(definitions) and definitions[ahead].start <= at:
            stack.append(ahead)
            ahead += 1
        while stack and definitions[stack[-1]].stop <= at:
            stack.pop()
        line = node.start_point[0] + 1
        around = next((n for n in reversed(stack) if _is_around(definitions[n], at, line)), -1)
        out.append(CallSite(text(node), line, around))
    return tuple(out)


def _is_around(one: DefinitionSite, at: int, line: int) -> bool:
    """A decorator above the name is not part of what the function does."""
    return one.kind in CALLABLE_KINDS and one.stop > at and one.line <= line
