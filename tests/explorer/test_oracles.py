"""What `make explore` rests on: the comparison is fair, and what cannot be had is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.explore import callers, main, sample_maps, trees
from bench.explore.comparison import Tag, compare
from tests.explorer.test_engine import read, write


def test_names_are_compared_by_file_name_and_line_with_two_lines_of_play() -> None:
    mine = [
        Tag("a", "A::f", 10, "callable"),
        Tag("a", "g", 20, "callable"),
        Tag("a", "T", 1, "type"),
    ]
    theirs = [
        Tag("a", "f", 12, "callable"),
        Tag("a", "g", 23, "callable"),
        Tag("b", "T", 1, "type"),
    ]
    difference = compare("cpp", "callable", mine, theirs)
    assert (difference.both, difference.only_here, difference.only_there) == (1, 1, 1)
    assert compare("cpp", "type", mine, theirs).both == 0


def test_a_definition_counts_once_for_one_tag() -> None:
    twice = [Tag("a", "f", 1, "callable"), Tag("a", "f", 2, "callable")]
    difference = compare("c", "callable", twice, twice[:1])
    assert (difference.both, difference.only_here) == (1, 1)


def test_what_an_oracle_cannot_see_is_left_out_by_its_mark_alone() -> None:
    local = Tag("a.go", "T", 5, "type", ("local",))
    plain = Tag("a.go", "U", 9, "type")
    difference = compare("go", "type", [local, plain], [])
    assert difference.only_here == 1 and sum(difference.unseen.values()) == 1
    assert compare("rust", "type", [local], []).only_here == 1


def test_a_false_call_is_found_by_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.py": "def f():\n    go(1)\n"})
    tree = read(tmp_path)
    assert callers.check({"t": (tmp_path, tree)}).false == []
    for text in ("# go(1)", "'go'", "def go(x):", "gone(1)", "go = 1"):
        write(tmp_path, {"a.py": f"def f():\n    {text}\n"})
        assert len(callers.check({"t": (tmp_path, tree)}).false) == callers.SAMPLE, text


def test_numbers_of_a_sample_that_differ_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"src/flask/app.py": "class Flask: pass\n"})
    row = sample_maps.compare("flask", read(tmp_path))
    different = row["different"]
    assert isinstance(different, dict)
    assert different["python class"] == {"sample": 47, "found": 1, "why": ""}


def test_without_a_network_it_is_not_ok_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "no-index").as_uri())
    monkeypatch.setattr(main, "TREES", (trees.RealTree("flask", "3.1.3", "pypi", ("python",)),))
    data = main.RESULT.read_bytes()
    assert main.main() == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["ok"] is False and "flask 3.1.3 (pypi)" in last["reasons"][0]
    assert main.RESULT.read_bytes() == data


def test_the_kept_result_is_ok_and_of_these_trees() -> None:
    value = json.loads(main.RESULT.read_text(encoding="utf-8"))
    assert value["ok"] and value["missing"] == []
    assert value["trees"] == [f"{t.name} {t.version} ({t.origin})" for t in trees.TREES]
    for row in value["definitions"].values():
        assert min(row["precision"], row["recall"]) >= main.GOAL
    assert value["callers"]["checked"] >= 200 and value["callers"]["false"] == []
