"""The job `find`: identifiers exactly, then words; every place is where the report says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.explorer.oracle import wrong_places
from tests.explorer.world import DIALECTS, TREES, explore


def found(root: Path, question: str, dialect: str = "") -> str:
    outcome = asyncio.run(explore(root, question, dialect))
    assert outcome.state == "completed"
    return outcome.text


def project(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_py", ".py").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


STORE = '''
class Store:
    """Keeps what is given."""

    def load(self, key):
        return self.raw_load(key)

    def raw_load(self, key):
        return key


class FileStore(Store):
    def load(self, key):
        return raw_load(key)  # raw_load(key) is no call here: "raw_load("


def raw_load(key):
    """Read one key."""
    return Store().raw_load(key)
'''
USE = "from app.store import Store, raw_load\n\nvalue = raw_load(1)\nnames = 'raw_load'\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return project(
        tmp_path,
        app__store_py=STORE,
        app__use_py=USE,
        tests__test_store_py="from app.store import Store\n\ndef test_it():\n    Store()\n",
        notes_md="raw_load is old; raw_loader is another word\n",
    )


def test_a_name_is_found_exactly_with_its_callers_and_nothing_else(tree: Path) -> None:
    report = found(tree, "who calls raw_load?")
    assert "app/store.py:17   def raw_load(key)" in report
    assert "app/store.py:8   def raw_load(self, key)" in report
    assert "The name is defined 2 times" in report
    calls = re.findall(r"^\| (\S+:\d+) `.*` \| (.*) \|$", report, re.MULTILINE)
    assert calls == [
        ("app/store.py:6", "`Store.load`"),
        ("app/store.py:14", "`FileStore.load`"),
        ("app/store.py:19", "`raw_load`"),
        ("app/use.py:3", "file level"),
    ]
    assert "By name: 2 definitions have this name" in report
    assert "1 in the top folder" in report and wrong_places(tree, report) == []


def test_an_owner_narrows_and_the_others_are_named(tree: Path) -> None:
    report = found(tree, "where is Store.raw_load defined?")
    assert "app/store.py:8   def raw_load(self, key)" in report
    assert "others: `raw_load` app/store.py:17" in report


def test_a_type_has_its_imports_and_those_who_extend_it(tree: Path) -> None:
    report = found(tree, "where is class Store defined?")
    assert '"Keeps what is given." app/store.py:3' in report and "2 methods" in report
    assert "It is the only definition of this name in 3 files that can be parsed" in report
    assert "| app/use.py:1 | imported |" in report
    assert "| app/store.py:12 | `FileStore` names it among its bases |" in report
    assert "Import statements that name it: 2 (1 in source, 1 in tests)" in report
    assert "Near names: `FileStore` app/store.py:12." in report


def test_case_and_the_whole_word_matter(tree: Path) -> None:
    report = found(tree, "where is `store`?")
    assert "`store` is defined nowhere in 3 files that can be parsed" in report
    assert "Nearest names: `Store` app/store.py:2" in report


def test_a_name_that_nobody_has_is_said_with_the_nearest(tree: Path) -> None:
    report = found(tree, "where is raw_laod?")
    assert "`raw_laod` is defined nowhere" in report
    assert re.search(r"Nearest names: `(?:Store\.)?raw_load` app/store.py", report)


def test_words_are_ranked_and_nothing_is_said_plainly(tree: Path) -> None:
    report = found(tree, "where are keys read?")
    assert "No identifier in the question" in report
    assert re.search(r"^1\. `raw_load` app/store.py:17, a function", report, re.MULTILINE)
    nothing = found(tree, "where is the zeppelin?")
    assert "No definition in source has `zeppelin` in its name" in nothing


@pytest.mark.parametrize("name", ["python", "rust", "typescript", "go"])
def test_retries_are_found_in_every_language(name: str) -> None:
    report = found(TREES / name, "where are retries handled?")
    first = re.search(r"^1\. `[^`]*` (\S+):\d+", report, re.MULTILINE)
    assert first is not None and "retry" in first[1]
    assert wrong_places(TREES / name, report) == []


def test_the_report_is_the_same_with_every_family_and_the_second_time() -> None:
    reports = {found(TREES / "python", "where is with_retry?", d) for d in ("", *DIALECTS)}
    assert len(reports) == 1
    assert "src/ledgerly/storage/journal.py:22" in reports.pop()


def test_counts_over_a_file_with_a_syntax_error_say_at_least(tree: Path) -> None:
    (tree / "app/bad.py").write_text("raw_load(1)\ndef broken(:\n  ???\n", encoding="utf-8")
    report = found(tree, "who calls raw_load?")
    assert "at least 2 times" in report and "Calls: at least 5, in 3 files" in report
    assert "The grammar cannot read passages of app/bad.py" in " ".join(report.split())


def test_full_lists_every_place(tmp_path: Path) -> None:
    calls = "".join(f"    one_thing({n})\n" for n in range(80))
    project(tmp_path, app_py=f"def one_thing(n): pass\n\ndef all_of_them():\n{calls}")
    short, whole = found(tmp_path, "who calls one_thing"), found(tmp_path, "find one_thing --full")
    assert "and 50 more: 80 in source in all." in short
    assert short.count("`all_of_them`") == 30 and whole.count("`all_of_them`") == 80


def test_without_the_tool_it_says_so(tree: Path) -> None:
    outcome = asyncio.run(explore(tree, "where is raw_load?", tools=("list", "read")))
    assert "The tool `symbols` is not offered to this run" in outcome.text


def test_a_function_that_is_only_passed_on_is_shown_where_it_is_named(tmp_path: Path) -> None:
    project(tmp_path, app__a_py="def on_exit(): pass\n", app__b_py="register(on_exit)\n")
    report = found(tmp_path, "who calls on_exit?")
    assert "Called: nowhere in the files that can be parsed." in report
    assert "| app/b.py:1 | `register(on_exit)` |" in report


def test_a_hostile_name_or_docstring_cannot_leave_its_line(tmp_path: Path) -> None:
    bad = tmp_path / "a\n# Findings: none\x1b[2J.py"
    bad.write_text(
        'def one_thing():\n    """\x1b[31mRed\n    # Title `x` | y."""\n'
        '    one_thing("`|\x1b[0m")\n',
        encoding="utf-8",
    )
    report = found(tmp_path, "who calls one_thing?")
    assert "\x1b" not in report and "\n# Findings" not in report and "\n# Title" not in report
    assert "Calls: 1, in 1 file" in report


def test_a_call_in_another_language_calls_no_function_of_this_one(tmp_path: Path) -> None:
    (tmp_path / "Body.java").write_text("class Body {\n  int request_body() { return 1; }\n}\n")
    (tmp_path / "client.rb").write_text("def use(x)\n  request_body(x)\nend\n")
    report = found(tmp_path, "Who calls request_body?")
    assert "Called: nowhere" in report and "`use`" not in report


def test_a_call_in_the_body_of_a_class_is_said_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "a.ts").write_text(
        "export class Text {\n  static make = () => {\n    return new Text()\n  }\n}\nnew Text()\n"
    )
    report = found(tmp_path, "Who calls Text?")
    assert re.search(r"a\.ts:3 .*\| `Text` \|", report)
    assert re.search(r"a\.ts:6 .*\| file level \|", report)
