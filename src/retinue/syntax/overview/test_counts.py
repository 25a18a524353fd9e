"""Tests, counted as each language writes them; never how many cases will run."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from retinue.syntax.case_rules import case_lines
from retinue.syntax.overview.dependencies import areas_named
from retinue.syntax.overview.map_facts import TestedFile, TestForm
from retinue.syntax.project.places import Place
from retinue.syntax.resolution import FileResolver
from retinue.syntax.source_languages import LANGUAGES
from retinue.syntax.source_tree import SourceTree

NOUNS = {
    "python": ("test function", "parametrised ones counted once"),
    "go": ("test function", ""),
    "rust": ("function marked #[test]", ""),
    "java": ("method marked @Test", ""),
    "kotlin": ("function marked @Test", ""),
    "ruby": ("test", "methods named test_* and blocks of `it`"),
    "php": ("method named test*", ""),
    "c_sharp": ("method marked as a test", ""),
    "javascript": ("test", "calls of `it`, `test` or `specify` with a title"),
    "cpp": ("use of a TEST macro", ""),
    "bash": ("`@test` block", ""),
}
NOUNS["typescript"] = NOUNS["tsx"] = NOUNS["javascript"]
BENCHMARK, MACRO = "benchmark", "use of a macro whose body has #[test]"
_BENCHMARK = re.compile(r"Benchmark(?![a-z])")


def count_tests(tree: SourceTree, most: int) -> list[TestForm]:
    """What was counted in source and tests, the largest count first."""
    counts: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    macros = {
        one.name
        for facts in tree.parsed.values()
        for one in facts.definitions
        if one.kind == "macro" and "test" in one.marks
    }
    for path, facts in tree.parsed.items():
        file = tree.files[path]
        if file.role not in ("source", "test"):
            continue
        title = LANGUAGES[file.language].title
        noun, note = NOUNS.get(file.language, ("test", ""))
        lines = set(case_lines(file))
        benchmarks = {d.line for d in facts.definitions if _is_benchmark(file.language, d.name)}
        counts[title, noun, note][path] += len(lines - benchmarks)
        counts[title, BENCHMARK, ""][path] += len(lines & benchmarks)
        if file.language == "rust":
            counts[title, MACRO, ""][path] += sum(c.name in macros for c in facts.calls)
    forms = [
        TestForm(*form, sum(files.values()), sum(n > 0 for n in files.values()), _most(files, most))
        for form, files in counts.items()
        if sum(files.values())
    ]
    return sorted(forms, key=lambda form: (-form.n, form.language, form.noun))


def _is_benchmark(language: str, name: str) -> bool:
    return language == "go" and _BENCHMARK.match(name) is not None


def _most(files: Counter[str], most: int) -> tuple[TestedFile, ...]:
    rows = sorted(files.items(), key=lambda row: (-row[1], row[0]))
    return tuple(TestedFile(Place(path, 1), n) for path, n in rows[:most] if n)


def aside_tests(tree: SourceTree) -> tuple[int, int]:
    """How many tests are in examples and the like, and in how many files."""
    counts = [len(case_lines(file)) for file in tree.of_role("aside")]
    return sum(counts), sum(n > 0 for n in counts)


def importers(
    tree: SourceTree, area_of: Mapping[str, str], resolver: FileResolver
) -> list[tuple[str, int]]:
    """How many test files import each area. A test beside the code of a Go package counts too."""
    paths: dict[str, set[str]] = defaultdict(set)
    folders = {p.rpartition("/")[0]: area for p, area in area_of.items() if p.endswith(".go")}
    for file in tree.of_role("test"):
        facts = tree.parsed.get(file.path)
        if facts is None:
            continue
        for one in facts.imports:
            for area in areas_named(resolver.files(file.path, one), area_of):
                paths[area].add(file.path)
        beside = folders.get(file.path.rpartition("/")[0])
        if file.language == "go" and beside:
            paths[beside].add(file.path)
    return sorted(
        ((area, len(files)) for area, files in paths.items()), key=lambda x: (-x[1], x[0])
    )
