"""No false claim: what a map says of the five golden trees is held against the trees."""

from __future__ import annotations

import asyncio
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from retinue.cli.terminal.markdown import rendered
from retinue.errors import SandboxMissing
from retinue.formats.markdown_blocks import MarkdownBlocks
from tests.explorer.oracle import (
    ENTRIES,
    FACTS,
    IMPORTED,
    PURPOSE,
    lines_of,
    n_places,
    python_imports,
    python_kinds,
    section,
    wrong_places,
)
from tests.explorer.world import DIALECTS, LOOKING, TREES, copied, explore

NAMES = tuple(FACTS)
NOT_TO_READ = re.compile(r"test|_pb2|generated|bundle|\.pb\.go|third_party")
SECTIONS = ("Run, build, test", "Areas", "Where to start reading", "Tests", "History")


@cache
def map_of(tree: str, dialect: str = "", task: str = "map this repository") -> str:
    outcome = asyncio.run(explore(TREES / tree, task, dialect))
    assert outcome.state == "completed", outcome.error
    return outcome.text


def flat(text: str) -> str:
    return " ".join(text.split())


def python_source(root: Path) -> list[str]:
    paths = [p.relative_to(root).as_posix() for p in (root / "src").rglob("*.py")]
    return [path for path in paths if "_pb2" not in path]


@pytest.mark.parametrize("tree", NAMES)
def test_every_place_in_a_map_is_there_and_has_what_it_is_said_to_have(tree: str) -> None:
    report = map_of(tree)
    assert wrong_places(TREES / tree, report) == []
    assert n_places(report) >= 12


def test_a_wrong_place_is_noticed() -> None:
    root = TREES / "go"
    assert wrong_places(root, "nowhere.go:1") and wrong_places(root, "go.mod:999")
    assert wrong_places(root, "`Nothing` go.mod:1") and wrong_places(root, "1. go.mod:1: `Nothing`")
    assert wrong_places(root, '"Not what it says" README.md:3')
    assert wrong_places(root, "`main` cmd/drain/main.go:10, README.md:3") == []


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("tree", NAMES)
def test_a_map_by_sub_agents_says_the_same_as_one_made_alone(tree: str, dialect: str) -> None:
    assert map_of(tree, dialect) == map_of(tree)


@pytest.mark.parametrize("tree", NAMES)
def test_a_map_is_a_page_of_a_hundred_columns(tree: str) -> None:
    lines = map_of(tree).split("\n")
    assert 50 <= len(lines) <= 95
    long = [line for line in lines if len(line) > 100 and not line.startswith("|")]
    assert long == []


@pytest.mark.parametrize("width", [79, 99, 199])
@pytest.mark.parametrize("tree", NAMES)
def test_a_terminal_cuts_no_place_and_draws_the_areas(tree: str, width: int) -> None:
    report = map_of(tree)
    blocks = MarkdownBlocks()
    lines = [line.plain for line in rendered([*blocks.feed(report), *blocks.close()], width)]
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    places = set(re.findall(r"[\w./-]+:\d+", report))
    assert [place for place in places if place not in text] == []
    assert "mermaid" not in text and "-->" not in text
    assert "▼" in text or tree == "mixed"


@pytest.mark.parametrize("tree", NAMES)
def test_sections_are_in_one_order_and_the_last_line_says_how_facts_were_made(tree: str) -> None:
    report = map_of(tree)
    matches = [
        title for title in re.findall(r"^## (.+)$", report, re.MULTILINE) if title in SECTIONS
    ]
    assert matches == [title for title in SECTIONS if title in matches] and len(matches) >= 4
    tail = report.rpartition("\n---\n")[2]
    assert tail.startswith("offline, no model. ") and "syntax trees (tree-sitter)" in tail
    assert "$" not in report and "token" not in tail


@pytest.mark.parametrize("tree", NAMES)
def test_the_purpose_comes_from_the_manifest_or_the_first_real_paragraph(tree: str) -> None:
    text, place = PURPOSE[tree]
    assert f"{text} {place}" in flat(map_of(tree))


@pytest.mark.parametrize("tree", NAMES)
def test_entry_points_are_found_where_they_are(tree: str) -> None:
    result = flat(section(map_of(tree), "Run, build, test"))
    assert [entry for entry in ENTRIES[tree] if entry not in result] == []


@pytest.mark.parametrize("tree", NAMES)
def test_counts_are_right(tree: str) -> None:
    report, root = map_of(tree), TREES / tree
    n_files, n_source = FACTS[tree][:2]
    n_tests, n_cases = FACTS[tree][2:]
    assert sum(path.is_file() for path in root.rglob("*")) == n_files
    top = flat(report.partition("## ")[0])
    assert f"{n_source} source files, " in top
    assert f"Beside it: {n_tests} test file" in top
    assert re.search(rf"^{n_cases} (?:test|function)", section(report, "Tests").strip())
    rows = re.findall(r"^\| (\S+) \| (\d+) \| ([\d,]+) \|", section(report, "Areas"), re.MULTILINE)
    assert 3 <= len(rows) <= 7
    assert sum(int(n) for _, n, _ in rows) == n_source
    n_lines = sum(int(n.replace(",", "")) for _, _, n in rows)
    assert f"{n_source} source files, {n_lines:,} lines" in top


def test_definitions_are_counted_as_pythons_own_parser_has_them() -> None:
    root = TREES / "python"
    classes, methods, functions = python_kinds(root, python_source(root))
    text = f"{classes} classes, {methods} methods, {functions} functions."
    assert text in flat(map_of("python"))


@pytest.mark.parametrize("tree", NAMES)
def test_import_statements_are_counted_as_an_independent_count_has_them(tree: str) -> None:
    match = re.search(
        r"Most imported \(.*?\): (.*?)\.(?:\n|$)", section(map_of(tree), "Areas"), re.S
    )
    assert match is not None
    output = {path: int(n) for path, n in re.findall(r"(\S+) \((\d+)\)", flat(match[1]))}
    target = IMPORTED.get(tree)
    if target is None:
        root = TREES / tree
        counts = python_imports(root, set(python_source(root)))
        target = {path: n for path, n in counts.items() if n > 1}
    assert output == target


def test_key_types_are_imported_by_as_many_files_as_it_is_said() -> None:
    root, report = TREES / "python", map_of("python")
    matches = re.findall(r"`(\w+)` (\S+?):\d+ \((\d+)\)", section(report, "Areas"))
    assert matches
    for name, path, n in matches:
        module = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        pattern = rf"^from {re.escape(module)} import .*\b{name}\b"
        files = [p for p in python_source(root) if re.search(pattern, (root / p).read_text(), re.M)]
        assert (name, len(files)) == (name, int(n))


@pytest.mark.parametrize("tree", NAMES)
def test_nobody_is_sent_to_read_tests_generated_or_vendored_files(tree: str) -> None:
    steps = section(map_of(tree), "Where to start reading")
    matches = re.findall(r"^\d+\. (\S+):\d+", steps, re.MULTILINE)
    assert 2 <= len(matches) <= 7 and len(set(matches)) == len(matches)
    assert [path for path in matches if NOT_TO_READ.search(path)] == []


def test_what_is_called_by_the_entry_point_is_called_there() -> None:
    match = re.search(r"`(\w+)`, called by `main` \((\S+):(\d+)\)", map_of("rust"))
    assert match is not None
    assert f"{match[1]}(" in lines_of(TREES / "rust", match[2])[int(match[3]) - 1]


def test_what_no_test_imports_is_named_and_not_called_untested() -> None:
    result = flat(section(map_of("python"), "Tests"))
    assert "Test files that import each area: src/ledgerly/model/ 3" in result
    assert "No test file imports src/ledgerly/cli/, src/ledgerly/report/" in result
    assert "untested" not in result


@pytest.mark.parametrize("tree", NAMES)
def test_a_map_in_full_has_everything_that_a_page_has(tree: str) -> None:
    page, full = map_of(tree), map_of(tree, task="map this repository in full")
    assert wrong_places(TREES / tree, full) == []
    places = set(re.findall(r"\S+:\d+", page))
    assert places <= set(re.findall(r"\S+:\d+", full)) and "more" not in section(full, "Tests")
    assert map_of(tree, task="map this repository\n\ndetail: full") == full


@pytest.mark.parametrize("dialect", ["", "fanout"])
def test_history_is_what_git_has(dialect: str, tmp_path: Path) -> None:
    root = copied("python", tmp_path, commits=4)
    report = asyncio.run(explore(root, "map this repository", dialect)).text
    matches = dict(re.findall(r"(src/\S+\.py) \((\d+)", flat(section(report, "History"))))
    log = subprocess.run(
        ["git", "log", "--name-only", "--format="],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    counts = {path: log.count(path) for path in python_source(root)}
    assert len(matches) == 5 and {path: int(n) for path, n in matches.items()} == {
        path: counts[path] for path in matches
    }
    assert min(int(n) for n in matches.values()) >= sorted(counts.values())[-5]
    assert "The last 4 commits that are not merges" in report and "history from git" in report
    assert wrong_places(root, report) == []


def test_history_needs_no_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without bubblewrap has a history too: our commands run nothing of a project."""

    def none(*_: object) -> None:
        raise SandboxMissing("bubblewrap is not installed")

    monkeypatch.setattr("retinue.sandbox.bwrap.find_sandbox", none)
    root = copied("python", tmp_path, commits=2)
    report = asyncio.run(explore(root, "map this repository")).text
    assert "## History" in report and "bubblewrap" not in report


def test_a_tree_outside_of_git_says_so() -> None:
    """The golden trees lie in a repository that begins above them."""
    result = section(map_of("go"), "Not looked at")
    assert "History: the git working tree begins above this directory" in flat(result)


def test_a_licence_is_never_what_a_project_is(tmp_path: Path) -> None:
    notice = "Copyright 2020 Somebody. Permission is hereby granted, free of charge, to anyone."
    (tmp_path / "README").write_text(f"{notice}\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.c").write_text(f"/* {notice} */\nint f(void) {{ return 1; }}\n")
    report = asyncio.run(explore(tmp_path, "map this")).text
    assert "The project says nothing of itself." in report and "Permission" not in report


def test_a_file_with_an_error_makes_its_counts_lower_bounds(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("def f():\n    return 1\n")
    (tmp_path / "bad.py").write_text("def g():\n    return (\n\nclass :\n")
    report = flat(asyncio.run(explore(tmp_path, "map this")).text)
    assert "at least 1 " in report or "at least 2 " in report
    assert "The grammar cannot read a passage in 1 file (bad.py:" in report


def test_a_map_of_many_areas_is_a_page_too_and_in_full_has_the_rest(tmp_path: Path) -> None:
    names = [f"area{n:02}" for n in range(14)]
    for name in names:
        (tmp_path / name).mkdir()
        lines = [f"from {other}.part import {other.title()}0" for other in names if other != name]
        lines += [f"class {name.title()}{k}:\n    pass\n" for k in range(20)]
        (tmp_path / name / "part.py").write_text("\n".join(lines))
        text = "\n".join(f"from {o}.part import {o.title()}{k}" for o in names for k in range(20))
        (tmp_path / name / "user.py").write_text(f'"""Uses of {name}."""\n{text}\n')
    page = asyncio.run(explore(tmp_path, "map this repository")).text
    full = asyncio.run(explore(tmp_path, "map this repository in full")).text
    assert 40 <= len(page.split("\n")) <= 90
    rows = [row for row in page.split("\n") if row.startswith("| area")][1:]
    assert len(rows) == 9 and {row.count("part.py:") for row in rows} == {2}
    assert {r.count("part.py:") for r in full.split("\n") if r.startswith("| area0")} == {10}
    assert "Also: area09/ (2 files)" in page


def test_a_tree_of_one_file_has_no_dependencies_and_no_error_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def broken(:\n  x\n\nclass Ok:\n  pass\n")
    report = flat(asyncio.run(explore(tmp_path, "map this")).text)
    assert "## Files" in report and "depend on each other" not in report
    assert "at least 1 class" in report and "(a.py:1)" in report


def test_definitions_in_many_languages_are_all_counted(tmp_path: Path) -> None:
    texts = {"a.py": "def f(): pass", "b.go": "package b\nfunc F() {}", "c.rb": "def g; end"}
    texts |= {"d.php": "<?php function h() {}", "e.rs": "fn i() {}"}
    for name, text in texts.items():
        (tmp_path / name).write_text(f"{text}\n")
    report = flat(asyncio.run(explore(tmp_path, "map this")).text)
    assert re.search(r"1 function in \w+; 1 function in \w+; 3 definitions in the others\.", report)


AREAS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")


@pytest.fixture(scope="module")
def wordy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of six areas that all import each other."""
    root = tmp_path_factory.mktemp("wordy")
    for area in AREAS:
        (root / area).mkdir()
        for n in range(12):
            lines = [f'"""What module {n} of {area} is for, said in a sentence of some length."""']
            lines += [
                f"from {other}.module_with_a_long_name_{n} import {other.title()}Class{n}Number0"
                for other in AREAS
                if other != area
            ]
            lines += [f"class {area.title()}Class{n}Number{k}:\n    pass" for k in range(12)]
            text = "\n\n".join(lines) + "\n"
            (root / area / f"module_with_a_long_name_{n}.py").write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_area_and_every_edge_is_in_the_map(wordy: Path, dialect: str) -> None:
    outcome = asyncio.run(explore(wordy, "map this repository", dialect, (*LOOKING, "artifact")))
    assert outcome.state == "completed", outcome.error
    rows = re.findall(
        r"^\| (\w+)/ \| (\d+) \| [\d,]+ \| (\d+) \|", section(outcome.text, "Areas"), re.MULTILINE
    )
    assert sorted(rows) == [(area, "12", "144") for area in sorted(AREAS)]
    assert re.findall(r"-->\|(\d+)\|", outcome.text) == ["12"] * 30
    assert "lower bounds" not in outcome.text and "There are no cycles" not in outcome.text
