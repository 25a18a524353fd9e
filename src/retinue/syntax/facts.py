"""Facts about one file as plain values, without syntax tree nodes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

TYPE_KINDS = frozenset(
    ("class", "struct", "union", "enum", "interface", "trait", "type", "record", "annotation")
)
CALLABLE_KINDS = frozenset(("function", "method"))
KINDS = TYPE_KINDS | CALLABLE_KINDS | {"macro", "module", "namespace"}


class DefinitionSite(Struct, frozen=True, array_like=True, gc=False):
    """`line` is the line of the name, `end` the last line. `owner` is the type around it, with
    those around that one (`A.B`). The bytes from `start` to `body` are its head (decorators too),
    those from `body` to `stop` what follows; without a body, `body` is `stop`. `doc` is the first
    paragraph of its docstring or of the comment above it. `marks` may have: local (inside a
    function), static, test, declared (a signature without a body), anonymous (its owner has no
    name), generic, property."""

    kind: str
    name: str
    line: int
    end: int
    owner: str
    start: int
    body: int
    stop: int
    doc: str = ""
    doc_line: int = 0
    bases: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name


class CallSite(Struct, frozen=True, array_like=True, gc=False):
    """A call expression by the last name of what it calls. `around` is the place of the innermost
    definition around it in the file's list, -1 at the level of the file."""

    name: str
    line: int
    around: int = -1


class ImportSite(Struct, frozen=True, array_like=True, gc=False):
    """One import of one module: `module` as it is written (`.globals`, `./utils`, `crate::args`),
    `names` what is taken from it by name ("*": all). One statement may have several."""

    module: str
    line: int
    names: tuple[str, ...] = ()


class FileFacts(Struct, frozen=True, array_like=True):
    """`cases` are lines of tests that are no definitions (`it("...")`, `TEST(...)`). `types` counts
    names in a type's place, where the language's grammar tells it (`reference_rule`). `errors` is
    the number of passages that the grammar could not read: then every count is a lower bound.
    `main` is the line where a program starts, or 0."""

    definitions: tuple[DefinitionSite, ...] = ()
    calls: tuple[CallSite, ...] = ()
    imports: tuple[ImportSite, ...] = ()
    cases: tuple[int, ...] = ()
    types: dict[str, int] = {}
    errors: int = 0
    error_line: int = 0
    doc: str = ""
    doc_line: int = 0
    main: int = 0

    def around(self, call: CallSite) -> DefinitionSite | None:
        return self.definitions[call.around] if call.around >= 0 else None


def count_kinds(definitions: Sequence[DefinitionSite]) -> dict[str, int]:
    """How many of each kind, the names of kinds in order."""
    out: dict[str, int] = {}
    for one in definitions:
        out[one.kind] = out.get(one.kind, 0) + 1
    return dict(sorted(out.items()))
