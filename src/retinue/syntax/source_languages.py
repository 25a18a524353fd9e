"""The languages that are parsed: file endings, the grammar's package, and what its syntax
can say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ReferenceRule = Literal["import", "type", "name"]


@dataclass(frozen=True, slots=True)
class SourceLanguage:
    """`package` and `maker` are the module and the function that return the grammar. `references`
    says what counts as a reference to a type: an import that names it, its name in a type's place,
    or its name anywhere."""

    key: str
    title: str
    endings: tuple[str, ...]
    references: ReferenceRule
    package: str = ""
    maker: str = "language"
    comment: str = "comment"

    @property
    def module(self) -> str:
        return self.package or f"tree_sitter_{self.key}"


_ALL = (
    SourceLanguage("python", "Python", (".py", ".pyi"), "import"),
    SourceLanguage("javascript", "JavaScript", (".js", ".mjs", ".cjs", ".jsx"), "import"),
    SourceLanguage(
        "typescript",
        "TypeScript",
        (".ts", ".mts", ".cts"),
        "import",
        "tree_sitter_typescript",
        "language_typescript",
    ),
    SourceLanguage(
        "tsx", "TypeScript", (".tsx",), "import", "tree_sitter_typescript", "language_tsx"
    ),
    SourceLanguage("go", "Go", (".go",), "type"),
    SourceLanguage("rust", "Rust", (".rs",), "type"),
    SourceLanguage("c", "C", (".c", ".h"), "type"),
    SourceLanguage("cpp", "C++", (".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx"), "type"),
    SourceLanguage("java", "Java", (".java",), "import"),
    SourceLanguage("ruby", "Ruby", (".rb", ".rake"), "name"),
    SourceLanguage("php", "PHP", (".php",), "import", "", "language_php"),
    SourceLanguage("c_sharp", "C#", (".cs",), "name"),
    SourceLanguage("kotlin", "Kotlin", (".kt", ".kts"), "name"),
    SourceLanguage("bash", "Bash", (".sh", ".bash", ".bats"), "name"),
)
LANGUAGES = {one.key: one for one in _ALL}
_BY_ENDING = {ending: one.key for one in _ALL for ending in one.endings}


_TOGETHER = (("javascript", "typescript", "tsx"), ("c", "cpp"), ("java", "kotlin"))


def call_family(language: str) -> str:
    """The languages whose functions call each other by their names; of others, itself."""
    return next((group[0] for group in _TOGETHER if language in group), language)


def language_of(path: str) -> str:
    """The key of a file's language by its ending, or ""."""
    name = path.rpartition("/")[2]
    head, dot, ending = name.rpartition(".")
    return _BY_ENDING.get(f".{ending.lower()}", "") if dot and head else ""
