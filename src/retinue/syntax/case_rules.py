"""Recognizes tests by syntax: by a name, an annotation or a macro. The path says whether a file is
one of tests; this is decided where the whole tree is known."""

from __future__ import annotations

import re

from retinue.syntax.source_tree import TreeFile

_ATTRIBUTES = {
    "java": re.compile(rb"@(?:\w+\.)*(?:Test|ParameterizedTest|RepeatedTest)\b"),
    "kotlin": re.compile(rb"@(?:\w+\.)*(?:Test|ParameterizedTest)\b"),
    "c_sharp": re.compile(rb"\[\s*(?:Fact|Theory|Test|TestCase|TestMethod)\b"),
}
_NAMES = {
    "python": re.compile(r"test"),
    "go": re.compile(r"(?:Test|Benchmark|Example|Fuzz)(?:[^a-z]|$)"),
    "ruby": re.compile(r"test_"),
    "php": re.compile(r"test"),
    "cpp": re.compile(r"(?:TYPED_)?TEST(?:_[FP])?$"),
}
_PATHS = {
    "python": re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_tests?|tests?)\.py$"),
    "go": re.compile(r"_test\.go$"),
    "php": re.compile(r"Test\.php$"),
}


def marks_test(language: str, kind: str, name: str, owner: str, head: bytes, whole: bytes) -> bool:
    """Whether a definition is a test, as far as it can say so itself. A macro of Rust is marked
    when its body makes tests."""
    if language == "rust":
        return kind == "macro" and b"#[test]" in whole
    if kind not in ("function", "method"):
        return False
    if (attribute := _ATTRIBUTES.get(language)) is not None:
        return attribute.search(head) is not None
    pattern = _NAMES.get(language)
    if pattern is None or not pattern.match(name):
        return False
    return not (language == "php" and kind != "method")


def is_case_file(language: str, path: str) -> bool:
    """Whether tests in a file of this path are counted."""
    pattern = _PATHS.get(language)
    return pattern is None or pattern.search(path) is not None


def case_lines(file: TreeFile) -> list[int]:
    """The lines of the tests in a file, by the rules of its language. A function inside a function
    is none; one of Python is a test at the level of the module, or in a class that is named or
    extended like one."""
    facts = file.facts
    if facts is None or not is_case_file(file.language, file.path):
        return []
    suites = {
        f"{d.owner}.{d.name}".strip(".")
        for d in facts.definitions
        if d.kind == "class" and (d.name.startswith("Test") or any(map(_is_suite, d.bases)))
    }
    lines = list(facts.cases)
    for one in facts.definitions:
        if "test" not in one.marks or "local" in one.marks or one.kind == "macro":
            continue
        if file.language == "python" and one.owner and one.owner not in suites:
            continue
        lines.append(one.line)
    return sorted(lines)


def _is_suite(base: str) -> bool:
    return base.endswith(("TestCase", "Tests", "Test", "TestBase"))
