"""No false claim: what a map says of the five golden trees is held against the trees."""

from __future__ import annotations

import asyncio
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.explorer.oracle import (
    ENTRIES,
    FACTS,
    IMPORTED,
    PURPOSE,
    lines_of,
    n_places,
    python_definitions,
    python_imports,
    section,
    wrong_places,
)
from tests.explorer.world import DIALECTS, LOOKING, TREES, copied, explore

NAMES = tuple(FACTS)
NOT_TO_READ = re.compile(r"test|_pb2|generated|bundle|\.pb\.go|third_party")


@cache
def map_of(tree: str, dialect: str = "") -> str:
    outcome = asyncio.run(explore(TREES / tree, "map this repository", dialect))
    assert outcome.state == "completed", outcome.error
    return outcome.text


@pytest.mark.parametrize("tree", NAMES)
def test_every_place_in_a_map_is_there_and_has_what_it_is_said_to_have(tree: str) -> None:
    report = map_of(tree)
    assert wrong_places(TREES / tree, report) == []
    assert n_places(report) > 30


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("tree", NAMES)
def test_a_map_by_sub_agents_says_the_same_as_one_made_alone(tree: str, dialect: str) -> None:
    alone, together = map_of(tree), map_of(tree, dialect)
    assert together.partition("\n---\n")[0] == alone.partition("\n---\n")[0]
    agents = re.search(r"by (\d+) agents", together)
    assert agents and int(agents[1]) >= 4


@pytest.mark.parametrize("tree", NAMES)
def test_the_purpose_comes_from_the_manifest_or_the_first_real_paragraph(tree: str) -> None:
    assert PURPOSE[tree] in map_of(tree).splitlines()


@pytest.mark.parametrize("tree", NAMES)
def test_entry_points_are_found_where_they_are(tree: str) -> None:
    found = section(map_of(tree), "Entry points")
    assert [e for e in ENTRIES[tree] if e not in found] == []


@pytest.mark.parametrize("tree", NAMES)
def test_counts_are_right(tree: str) -> None:
    report, root = map_of(tree), TREES / tree
    n_files, n_source, n_tests, n_cases, _ = FACTS[tree]
    assert sum(p.is_file() for p in root.rglob("*")) == n_files
    top = report.partition("## ")[0]
    assert f"{n_files} files; {n_source} source files, " in top
    assert f"{n_tests} test file{'s' if n_tests > 1 else ''}, {n_cases} test case" in section(
        report, "Tests"
    )
    rows = re.findall(
        r"^\| (\S+) \| (\d+) \| ([\d.]+ \w+) \| (\d+) \|", section(report, "Areas"), re.MULTILINE
    )
    assert 3 <= len(rows) <= 7
    assert sum(int(n) for _, n, _, _ in rows) == n_source


@pytest.mark.parametrize("tree", NAMES)
def test_definitions_are_counted_right(tree: str) -> None:
    rows = re.findall(
        r"^\| (\S+) \| \d+ \| [\d.]+ \w+ \| (\d+) \|", section(map_of(tree), "Areas"), re.MULTILINE
    )
    wanted = FACTS[tree][4]
    if wanted is None:
        root = TREES / tree
        source = [
            p.relative_to(root).as_posix()
            for p in (root / "src").rglob("*.py")
            if "_pb2" not in p.name
        ]
        wanted = sum(python_definitions(root, p) for p in source)
    assert sum(int(n) for _, n in rows) == wanted


@pytest.mark.parametrize("tree", NAMES)
def test_import_lines_are_counted_as_an_independent_count_has_them(tree: str) -> None:
    shown = {}
    for path, package, n in re.findall(
        r"^- (\S+):1(?: \(package (\S+)/\))?, (\d+) import lines?",
        section(map_of(tree), "Most imported"),
        re.MULTILINE,
    ):
        shown[package or path] = int(n)
    wanted = IMPORTED.get(tree)
    if wanted is None:
        root = TREES / tree
        files = {p.relative_to(root).as_posix() for p in (root / "src").rglob("*.py")}
        wanted = python_imports(root, {f for f in files if "_pb2" not in f})
    assert shown == wanted


@pytest.mark.parametrize("tree", NAMES)
def test_a_type_is_named_in_as_many_files_as_it_is_said_to_be(tree: str) -> None:
    root, found = TREES / tree, section(map_of(tree), "Most imported")
    told = re.findall(r"`(\w+)` (\S+):\d+, named in (\d+) files?", found)
    assert told
    for name, path, n in told:
        ends = {".js": (".js",), ".h": (".c", ".h")}.get(Path(path).suffix, (Path(path).suffix,))
        files = [
            p
            for p in root.rglob("*")
            if p.suffix in ends and re.search(rf"\b{name}\b", p.read_text("utf-8"))
        ]
        assert (name, len(files)) == (name, int(n))


@pytest.mark.parametrize("tree", NAMES)
def test_nobody_is_sent_to_read_tests_generated_or_vendored_files(tree: str) -> None:
    found = re.findall(r"^\d+\. (\S+):\d+", section(map_of(tree), "Reading order"), re.MULTILINE)
    assert len(found) >= 4 and len(set(found)) == len(found)
    assert [p for p in found if NOT_TO_READ.search(p)] == []


@pytest.mark.parametrize("tree", NAMES)
def test_areas_do_not_overlap_and_edges_stand_on_lines_that_import(tree: str) -> None:
    report = map_of(tree)
    for path, line in re.findall(r"e\.g\. (\S+):(\d+)\)", section(report, "Key types")):
        text = lines_of(TREES / tree, path)[int(line) - 1]
        assert re.search(r"import|use |include|from '|\"example", text), (path, line, text)
    graph = re.findall(r"-->\|(\d+)\|", report)
    told = re.findall(r"\((\d+) import lines?, e\.g\.", section(report, "Key types"))
    assert sorted(graph) == sorted(told)


def test_what_no_test_touches_is_named() -> None:
    found = section(map_of("python"), "Tests")
    assert (
        "- src/ledgerly/cli/: no test imports it" in found
        and "src/ledgerly/storage/retry.py:1" in found
    )
    assert "src/ledgerly/model/money.py" not in found
    inline = section(map_of("rust"), "Tests")
    assert "1 source file with tests inside" in inline and "- src/warn/: no test" not in inline


def test_hot_spots_are_size_times_changes_as_git_has_them(tmp_path: Path) -> None:
    root = copied("python", tmp_path, commits=4)
    report = asyncio.run(explore(root, "map this repository", "fanout")).text
    told = re.findall(
        r"^- (\S+):1: (.+), changed in (\d+) commits", section(report, "Hot spots"), re.MULTILINE
    )
    log = subprocess.run(
        ["git", "log", "--name-only", "--format="],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    wanted = {p: log.count(p) for p in set(log) if p.startswith("src/") and log.count(p) > 1}
    assert {p: int(n) for p, _, n in told} == wanted and wanted
    order = [(root / p).stat().st_size * int(n) for p, _, n in told]
    assert order == sorted(order, reverse=True)
    assert f"over the last {len(log) and 4} commits" in report
    assert wrong_places(root, report) == []


def test_a_map_names_the_tool_calls_and_says_that_there_was_no_llm() -> None:
    report = map_of("go")
    tail = report.rpartition("---\n")[2].splitlines()
    assert (
        tail[0] == "Offline explorer (no LLM). To use a model: export ANTHROPIC_API_KEY=... or "
        "retinue config"
    )
    assert re.fullmatch(r"\d+ tool calls by 1 agent; .*", tail[1])


AREAS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")


@pytest.fixture(scope="module")
def wordy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree about which sub-agents find more than one answer has room for."""
    root = tmp_path_factory.mktemp("wordy")
    for area in AREAS:
        (root / area).mkdir()
        for n in range(12):
            lines = [
                f'"""What module {n} of {area} is for, said in a sentence of some length, as '
                'people do."""'
            ]
            lines += [
                f"from {other}.module_with_a_long_name_{n} import Name{n}"
                for other in AREAS
                if other != area
            ]
            lines += [
                f"class {area.title()}ClassWithALongName{n}Number{k}(Name{n}):\n    pass"
                for k in range(12)
            ]
            (root / area / f"module_with_a_long_name_{n}.py").write_text(
                "\n\n".join(lines) + "\n", encoding="utf-8"
            )
    return root


@pytest.mark.parametrize("dialect", DIALECTS)
def test_findings_that_are_longer_than_one_answer_are_all_in_the_map(
    wordy: Path, dialect: str
) -> None:
    outcome = asyncio.run(explore(wordy, "map this repository", dialect, (*LOOKING, "artifact")))
    assert outcome.state == "completed", outcome.error
    rows = re.findall(
        r"^\| (\w+)/ \| (\d+) \| \d+ KiB \| (\d+) \|", section(outcome.text, "Areas"), re.MULTILINE
    )
    assert sorted(rows) == [(area, "12", "144") for area in sorted(AREAS)]
    graph = re.findall(r"-->\|(\d+)\|", outcome.text)
    assert graph == ["12"] * 30
    assert "lower bounds" not in outcome.text
