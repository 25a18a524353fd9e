"""What the explorer knows of languages: which files are whose, which are tests, generated or
somebody else's, and how a line looks that defines or imports something. The patterns keep to what
every search engine understands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from posixpath import splitext

MODIFIERS = (
    "(?:(?:public|protected|private|internal|abstract|final|static|sealed|partial|open|data)[ ]+)*"
)


@dataclass(frozen=True)
class Language:
    """`types` and `functions` have one group, the name. `imports` says which lines import
    something."""

    name: str
    key: str
    extensions: tuple[str, ...]
    types: str
    functions: str
    imports: str
    glob: str = ""
    tests: str = ""
    heads: tuple[str, ...] = field(default=())

    @property
    def definitions(self) -> str:
        return "|".join(f"(?:{p})" for p in (self.types, self.functions) if p).replace(
            r"(\w+)", r"\w+"
        )


PYTHON = Language(
    "Python",
    "py",
    (".py", ".pyi"),
    r"^class[ \t]+(\w+)",
    r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)",
    r"^[ \t]*(?:from[ \t]+[.\w]+[ \t]+import\b|import[ \t]+\w)",
    "*.py",
    r"^[ \t]*(?:async[ \t]+)?def[ \t]+test\w*",
    ("__init__.py",),
)
RUST = Language(
    "Rust",
    "rs",
    (".rs",),
    r"^(?:pub(?:\([^)]*\))?[ \t]+)?(?:struct|enum|trait|union)[ \t]+(\w+)",
    r"^[ \t]*(?:pub(?:\([^)]*\))?[ \t]+)?(?:const[ \t]+)?(?:async[ \t]+)?(?:unsafe[ \t]+)?fn[ "
    r"\t]+(\w+)",
    r"^[ \t]*(?:pub(?:\([^)]*\))?[ \t]+)?use[ \t]+[\w:{]",
    "*.rs",
    r"^[ \t]*#\[(?:\w+::)?test\b",
    ("lib.rs", "mod.rs", "main.rs"),
)
_TS_IMPORT = (
    r"^(?:import|export)\b.*\bfrom[ \t]*['\"]|^import[ \t]*['\"]|^\}[ \t]*from[ "
    r"\t]*['\"]|\brequire\([ \t]*['\"]\.|"
    r"\bimport\([ \t]*['\"]\."
)
_TS_TYPES = (
    r"^(?:export[ \t]+)?(?:default[ \t]+)?(?:declare[ \t]+)?(?:abstract[ "
    r"\t]+)?(?:class|interface|enum|type)[ \t]+(\w+)"
)
_TS_FUNCTIONS = (
    r"^(?:export[ \t]+)?(?:default[ \t]+)?(?:async[ \t]+)?"
    r"(?:function[ \t]*\*?[ \t]*(\w+)|const[ \t]+(\w+)[ \t]*=[ \t]*(?:async[ "
    r"\t]*)?(?:\(|function\b))"
)
TYPESCRIPT = Language(
    "TypeScript",
    "ts",
    (".ts", ".tsx", ".mts", ".cts"),
    _TS_TYPES,
    _TS_FUNCTIONS,
    _TS_IMPORT,
    "*.{ts,tsx,mts,cts}",
    r"^[ \t]*(?:it|test)(?:\.\w+)*\(",
    ("index.ts", "index.tsx"),
)
JAVASCRIPT = Language(
    "JavaScript",
    "js",
    (".js", ".jsx", ".mjs", ".cjs"),
    r"^(?:export[ \t]+)?(?:default[ \t]+)?class[ \t]+(\w+)",
    _TS_FUNCTIONS,
    _TS_IMPORT,
    "*.{js,jsx,mjs,cjs}",
    TYPESCRIPT.tests,
    ("index.js",),
)
GO = Language(
    "Go",
    "go",
    (".go",),
    r"^type[ \t]+(\w+)",
    r"^func[ \t]+(?:\([^)]*\)[ \t]*)?(\w+)",
    r"^(?:import[ \t]+|[ \t]+)(?:[\w.]+[ \t]+)?\"[^\" ]+\"[ \t]*$",
    "*.go",
    r"^func[ \t]+Test\w*",
    ("doc.go",),
)
JAVA = Language(
    "Java",
    "java",
    (".java", ".kt"),
    r"^" + MODIFIERS + r"(?:class|interface|enum|record|object)[ ]+(\w+)",
    r"^[ \t]+(?:public|protected|private)[ ][\w<>\[\], ?.]*[ ](\w+)\(",
    r"^import[ ]+[\w.]+",
    "*.{java,kt}",
    r"^[ \t]*@Test\b",
    ("package-info.java",),
)
CSHARP = Language(
    "C#",
    "cs",
    (".cs",),
    r"^[ ]{0,4}" + MODIFIERS + r"(?:class|interface|enum|record|struct)[ ]+(\w+)",
    r"^[ \t]+(?:public|protected|private|internal)[ ][\w<>\[\], ?.]*[ ](\w+)\(",
    r"^using[ ]+[\w.]+;",
    "*.cs",
    r"^[ \t]*\[(?:Test|Fact|Theory)\b",
)
C = Language(
    "C/C++",
    "c",
    (".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".ino"),
    r"^(?:typedef[ ]+)?(?:struct|class|enum|union)(?:[ ]+class)?[ ]+(\w+)[^;()]*$",
    r"^[A-Za-z_][\w \*&:<>,]*[ \*&](\w+)\([^;]*$",
    r"^[ \t]*#[ \t]*include[ \t]+\"[^\"]+\"",
    "*.{c,h,cc,cpp,cxx,hpp,hh,ino}",
    r"^(?:TEST|TEST_F|TEST_CASE)\(",
)
RUBY = Language(
    "Ruby",
    "rb",
    (".rb",),
    r"^[ \t]*(?:class|module)[ \t]+(\w+)",
    r"^[ \t]*def[ \t]+(?:self\.)?(\w+)",
    r"^[ \t]*require(?:_relative)?[ \t]+['\"]",
    "*.rb",
    r"^[ \t]*(?:it|specify)[ \t]+['\"]|^[ \t]*def[ \t]+test_\w+",
)
SHELL = Language(
    "Shell",
    "sh",
    (".sh", ".bash", ".zsh"),
    "",
    r"^[ \t]*(?:function[ \t]+)?(\w+)[ \t]*\(\)",
    r"^[ \t]*(?:source|\.)[ \t]+\S",
    "*.{sh,bash,zsh}",
    r"^[ \t]*@test\b",
)
PHP = Language(
    "PHP",
    "php",
    (".php",),
    r"^" + MODIFIERS + r"(?:class|interface|trait|enum)[ ]+(\w+)",
    r"^[ \t]*(?:public |protected |private |static )*function[ ]+(\w+)",
    r"^use[ ]+[\w\\]+",
    "*.php",
    r"function[ ]+test\w+",
)
KNOWN = (PYTHON, RUST, TYPESCRIPT, JAVASCRIPT, GO, JAVA, CSHARP, C, RUBY, SHELL, PHP)
BY_KEY = {language.key: language for language in KNOWN}
_BY_EXTENSION = {extension: language for language in KNOWN for extension in language.extensions}
OTHERS = {
    ".swift": "Swift",
    ".scala": "Scala",
    ".ex": "Elixir",
    ".exs": "Elixir",
    ".hs": "Haskell",
    ".lua": "Lua",
    ".dart": "Dart",
    ".sql": "SQL",
    ".vue": "Vue",
    ".svelte": "Svelte",
    ".css": "CSS",
    ".scss": "CSS",
    ".html": "HTML",
    ".pl": "Perl",
    ".r": "R",
    ".jl": "Julia",
    ".zig": "Zig",
    ".clj": "Clojure",
    ".proto": "Protobuf",
    ".tf": "Terraform",
}
SOFT = {"CSS", "HTML", "SQL", "Protobuf", "Terraform"}


@lru_cache(maxsize=8192)
def language_of(path: str) -> Language | None:
    return _BY_EXTENSION.get(splitext(path)[1].lower())


@lru_cache(maxsize=8192)
def language_name(path: str) -> str:
    """The name of a source file's language, "" for what is no source."""
    known = language_of(path)
    return known.name if known else OTHERS.get(splitext(path)[1].lower(), "")


def name_in(pattern: str, text: str) -> str:
    """The name that a line defines, "" when it defines none."""
    found = _compiled(pattern).search(text) if pattern else None
    return next((g for g in found.groups() if g), "") if found else ""


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
