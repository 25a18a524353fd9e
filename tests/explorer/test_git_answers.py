"""What git adds to a report: nothing that the run may not read, and the tree is read once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import pytest

from retinue.host.listing import ListedRun
from retinue.syntax.changes.change_set import ChangeSet, CommitHistory
from retinue.syntax.syntax_engine import SyntaxEngine
from retinue.syntax.tree_files import OpenTree, folder_files
from retinue.syntax.tree_questions import TreeQuestion
from retinue.tools.builtin.git_answers import GitPlace, ask_git, history_answer, reader
from retinue.tools.builtin.kept_answers import KeptAnswers
from retinue.view.totals import TreeSpending
from tests.explorer.world import commit, copied


def place(root: Path, files: OpenTree, hidden_name: str) -> GitPlace:
    return GitPlace(str(root), (), lambda path: path.startswith(hidden_name), reader(files))


def test_a_file_that_the_run_may_not_read_is_in_no_change_and_no_history(tmp_path: Path) -> None:
    root = copied("python", tmp_path)
    for name in ("src/ledgerly/model/money.py", "src/ledgerly/cli/main.py"):
        (root / name).write_text("SECRET = 1\n", encoding="utf-8")
    with folder_files(str(root)) as files:
        where = place(root, files, "src/ledgerly/model/")
        change = asyncio.run(ask_git("changes", "", where))
        history = asyncio.run(ask_git("history", "", where))
    assert isinstance(change, ChangeSet) and isinstance(history, CommitHistory)
    assert [file.path for file in change.files] == ["src/ledgerly/cli/main.py"]
    assert "src/ledgerly/cli/main.py" in history.changes
    assert not any(path.startswith("src/ledgerly/model/") for path in history.changes)


def test_a_change_of_which_nothing_may_be_read_is_not_reviewed(tmp_path: Path) -> None:
    root = copied("go", tmp_path)
    with folder_files(str(root)) as files:
        change = asyncio.run(ask_git("changes", "", place(root, files, "")))
    assert isinstance(change, ChangeSet)
    assert change.problem == "this run may not read the files that changed" and not change.files


def test_history_is_about_source(tmp_path: Path) -> None:
    root = copied("python", tmp_path)
    (root / "README.md").write_text("# Other\n", encoding="utf-8")
    commit(root, "words")
    engine = SyntaxEngine()
    with folder_files(str(root)) as files:
        text = asyncio.run(ask_git("history", "", place(root, files, "\0")))
        assert isinstance(text, CommitHistory) and text.changes["README.md"] == 2
        answer = history_answer(engine, files, text, Event())
    engine.close()
    assert answer.n_commits == 2 and "README.md" not in answer.changes
    assert answer.changes["src/ledgerly/cli/main.py"] == 1
    assert not any(path.startswith("tests/") for path in answer.changes)


class Counted(SyntaxEngine):
    """Counts how often a tree is read."""

    n_read = 0

    def read_tree(self, *args: object, **more: object) -> object:  # type: ignore[override]
        self.n_read += 1
        return super().read_tree(*args, **more)  # type: ignore[arg-type]


def test_the_areas_of_a_map_are_answered_without_reading_the_tree_again(tmp_path: Path) -> None:
    root, engine, answers = copied("python", tmp_path), Counted(), KeptAnswers()

    def ask(question: str, area: str = "") -> object:
        with folder_files(str(root)) as files:
            return answers.answer(engine, files, question, TreeQuestion(area=area), Event())

    first = ask("map")
    rows = ask("area", "src/ledgerly/model/")
    assert engine.n_read == 1 and ask("map") == first and engine.n_read == 1
    (root / "src/ledgerly/model/extra.py").write_text("class Extra:\n    pass\n")
    assert ask("area", "src/ledgerly/model/") != rows and engine.n_read == 2
    engine.close()


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ([TreeSpending(10, 0.0, is_offline=True)], ("offline, no model",)),
        ([TreeSpending(10, 0.0, is_offline=True)] * 2, ("offline, no model",)),
        ([TreeSpending(10, 0.5), TreeSpending(10, 0.0, is_offline=True)], ("20 tokens", "$0.50")),
    ],
)
def test_no_tokens_and_no_dollars_are_shown_where_no_model_was_called(
    parts: list[TreeSpending], texts: tuple[str, ...]
) -> None:
    total = TreeSpending(0, 0.0)
    for part in parts:
        total = total.plus(part)
    assert total.words == texts


def test_a_listed_run_of_the_explorer_is_offline() -> None:
    texts = dict.fromkeys(("id", "short", "parent", "root", "label", "agent", "state", "task"), "x")
    numbers = dict.fromkeys(("depth", "turn", "created_at", "own_tokens", "tokens"), 1)
    times = {"started_at": None, "ended_at": None}
    row = ListedRun(**texts, **numbers, **times, model="offline/explorer", usd=0.0)  # type: ignore[arg-type]
    assert row.is_offline and row.as_json()["is_offline"]
    assert not row._replace(usd=0.5).is_offline and not row._replace(model="a:b").is_offline
