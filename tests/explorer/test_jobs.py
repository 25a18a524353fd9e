"""The other jobs: find, review, compare; and how a task is understood."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from retinue import Retinue
from retinue.core.messages import Assistant, Call, Result, User
from retinue.models.explorer.diffs import FileDiff
from retinue.models.explorer.intent import paths_in, read_intent, revision
from retinue.models.explorer.known_answers import (
    CUT,
    CUT_SHORT,
    KnownAnswers,
    assignment,
    is_cut,
)
from retinue.models.explorer.review_checks import risk
from retinue.models.explorer.synonyms import split_identifier, stem, topics
from tests.explorer.oracle import lines_of, section, wrong_places
from tests.explorer.world import DIALECTS, TREES, copied, explore, explorer

LATER = "FIX" + "ME"


@pytest.mark.parametrize(
    ("task", "job"),
    [
        ("map this repository", "map"),
        ("help me understand this code base", "map"),
        ("Give me an overview of the architecture", "map"),
        ("where is error handling done?", "find"),
        ("find the code for auth", "find"),
        ("how are passwords stored?", "find"),
        ("which file parses the config?", "find"),
        ("review my changes", "review"),
        ("check my diff", "review"),
        ("compare src/a and src/b", "compare"),
        ("what are the differences between old/ and new/?", "compare"),
        ("where do we compare versions?", "find"),
        ("write me a poem", "map"),
        ("job: find\nretries", "find"),
        ("--job review", "review"),
        ("job: Compare\n`a` `b`", "compare"),
    ],
)
def test_a_task_is_matched_to_a_job(task: str, job: str) -> None:
    assert read_intent(task).job == job


def test_what_is_no_job_is_mapped_and_that_is_said() -> None:
    report = asyncio.run(explore(TREES / "go", "write me a poem")).text
    assert "The task names none of them, so this is the map." in report
    report = asyncio.run(explore(TREES / "go", "job: sing\nla la")).text
    assert "unknown job `sing`. Known: map, find, review, compare. This is `map`." in report


@pytest.mark.parametrize(
    ("text", "rev"),
    [
        ("review my changes", ""),
        ("review HEAD~2..HEAD", "HEAD~2..HEAD"),
        ("review the last commit", "HEAD~1..HEAD"),
        ("review the last 3 commits", "HEAD~3..HEAD"),
        ("review against main", "main"),
        ("review a1b2c3d4", "a1b2c3d4"),
        ("review main...topic/x", "main...topic/x"),
        ("review --output=/tmp/x", ""),
    ],
)
def test_the_revision_of_a_review_is_found_and_is_never_an_option(text: str, rev: str) -> None:
    assert revision(text) == rev


def test_two_paths_are_found_however_they_are_written() -> None:
    assert paths_in("compare src/a/ and src/b/") == ["src/a", "src/b"]
    assert paths_in("compare `one` with `two words`") == ["one", "two words"]
    assert paths_in("compare backend and frontend") == ["backend", "frontend"]
    assert paths_in("compare everything") == []


def test_words_are_split_stemmed_and_chosen() -> None:
    assert split_identifier("maxRetries_left HTTPServer") == [
        "max",
        "retries",
        "left",
        "http",
        "server",
    ]
    assert stem("retries") == stem("retry") == stem("retrying")
    assert stem("cancelled") == stem("cancel") and stem("parsing") == stem("parse") == stem(
        "parsed"
    )
    assert topics("Where is the retry logic for `JournalLocked` implemented?")[:3] == [
        "journal",
        "locked",
        "retry",
    ]


@pytest.mark.parametrize("tree", ["python", "rust", "typescript", "go"])
@pytest.mark.parametrize("dialect", ["", "agent", "subagent"])
def test_find_shows_where_retries_are_done(tree: str, dialect: str) -> None:
    root = TREES / tree
    report = asyncio.run(explore(root, "where are retries handled?", dialect)).text
    first = re.search(r"^## 1\. (\S+):(\d+)$", report, re.MULTILINE)
    assert (
        first
        and "retry" in first[1]
        and "retry" in lines_of(root, first[1])[int(first[2]) - 1].lower()
    )
    assert wrong_places(root, report) == []
    for head, body in re.findall(
        r"^## \d+\. (\S+):\d+$(.*?)^```$.*?(?=^## |\Z)", report, re.MULTILINE | re.DOTALL
    ):
        assert head and body is not None


@pytest.mark.parametrize("tree", ["python", "rust", "typescript", "go"])
def test_every_line_of_a_snippet_is_that_line_of_the_file(tree: str) -> None:
    root = TREES / tree
    report = asyncio.run(explore(root, "where are retries and errors handled?", "fanout")).text
    shown = 0
    for path, block in re.findall(
        r"^## \d+\. (\S+):\d+\n.*?```\n(.*?)\n```", report, re.MULTILINE | re.DOTALL
    ):
        for line in block.splitlines():
            number, _, text = line.partition(" | ") if " | " in line else line.partition(" |")
            assert lines_of(root, path)[int(number) - 1].rstrip() == text.rstrip()
            shown += 1
    assert shown >= 5


def test_find_names_the_function_around_and_who_calls_it() -> None:
    report = asyncio.run(explore(TREES / "python", "where is with_retry?")).text
    assert "In `with_retry` src/ledgerly/storage/retry.py:11" in report
    assert "Lines that call a `with_retry`: src/ledgerly/storage/journal.py:22." in report


def test_find_admits_that_there_is_nothing() -> None:
    report = asyncio.run(explore(TREES / "go", "where is the zeppelin?")).text
    assert "No source file has any of these words." in report


def changed(tmp_path: Path) -> Path:
    """A repository with changes of every kind that a review looks for."""
    root = copied("python", tmp_path)
    journal = root / "src/ledgerly/storage/journal.py"
    text = journal.read_text(encoding="utf-8")
    new = (
        "    def append(self, entry: Entry, force: bool = False) -> None:\n        try:\n"
        "            with_retry(lambda: self._write(entry))\n        except Exception:\n"
        f'            print("failed")  # {LATER} later\n'
    )
    old = (
        "    def append(self, entry: Entry) -> None:\n        with_retry(lambda: "
        "self._write(entry))\n"
    )
    assert old in text
    journal.write_text(text.replace(old, new), encoding="utf-8")
    tests = root / "tests/test_money.py"
    tests.write_text(
        tests.read_text(encoding="utf-8").partition("def test_amounts_subtract")[0],
        encoding="utf-8",
    )
    balance = root / "src/ledgerly/report/balance.py"
    kept = balance.read_text(encoding="utf-8").partition("def as_money")[0]
    balance.write_text(f'{kept}API_KEY = "abcd1234abcd1234"\n<<<<<<< ours\n', encoding="utf-8")
    (root / "run_it.py").write_text(
        "import os\n\n\ndef go(x):\n    os.system(x)\n", encoding="utf-8"
    )
    return root


@pytest.mark.parametrize("dialect", ["", *DIALECTS])
def test_a_review_finds_what_was_planted_with_severity_and_line(
    dialect: str, tmp_path: Path
) -> None:
    root = changed(tmp_path)
    report = asyncio.run(explore(root, "review my changes", dialect)).text
    assert re.search(r"^severity: high$", report, re.MULTILINE)
    assert re.search(r"^complete: yes$", report, re.MULTILINE)
    high, medium, low = (section(report, s) for s in ("High", "Medium", "Low"))
    assert "src/ledgerly/report/balance.py:17 | a possible secret" in high
    assert "src/ledgerly/report/balance.py:18 | a leftover merge marker" in high
    assert "tests/test_money.py:7 | 1 test case fewer than before" in high
    assert "src/ledgerly/storage/journal.py:24 | errors are caught broadly" in medium
    assert "`as_money` was public and was removed or hidden here" in medium
    assert "run_it.py:5 | runs a command through a shell" in medium
    assert "src/ledgerly/storage/journal.py:25 | work postponed" in low
    assert "abcd1234" not in report
    assert wrong_places(root, report) == []


def test_a_guessed_secret_in_a_test_is_no_finding_and_a_known_one_is() -> None:
    guessed, known = [(1, 'password = "correct-horse"')], [(1, "AKIA" + "A" * 16)]
    for path, lines, found in (
        ("src/a.py", guessed, ["a possible secret in the text"]),
        ("tests/test_a.py", guessed, []),
        ("tests/test_a.py", known, ["an AWS access key in the text"]),
    ):
        assert [what for *_, what in risk([FileDiff(path, added=lines)])] == found


def test_a_review_of_commits_and_of_nothing(tmp_path: Path) -> None:
    root = copied("go", tmp_path, commits=1)
    assert "severity: none" in asyncio.run(explore(root, "review my changes")).text
    report = asyncio.run(explore(root, "review nosuchbranch..HEAD")).text
    assert "complete: no" in report and "git said" in report


@pytest.mark.parametrize("dialect", ["", *DIALECTS])
def test_two_folders_are_put_side_by_side(dialect: str) -> None:
    root = TREES / "mixed"
    report = asyncio.run(explore(root, "compare `web` and `firmware`", dialect)).text
    assert (
        "| source files | 3 | 3 |" in report
        and "| languages | JavaScript 100% | C/C++ 100% |" in report
    )
    assert "| definitions | 3 | 4 |" in report
    assert "- only in firmware (1): `frame` firmware/camera.h:2" in report
    assert wrong_places(root, report) == []


def test_a_side_that_is_not_there_is_said_to_be_missing() -> None:
    report = asyncio.run(explore(TREES / "mixed", "compare `web` and `nowhere`", "fanout")).text
    assert (
        "| source files | 3 | not explored |" in report
        and "`nowhere` is missing from this report" in report
    )


def test_a_person_who_writes_meanwhile_is_not_ignored_silently() -> None:
    work = assignment(
        [
            User(text="map this"),
            Assistant(calls=(Call(id="1", name="list", args="{}"),)),
            User(text="please skip the tests", kind="mail"),
            Result(call_id="1", text="a.py\t3"),
        ]
    )
    assert work.unread == ("please skip the tests",) and not work.stop
    assert assignment([User(text="map"), User(text="stop now", kind="mail")]).stop
    again = assignment(
        [User(text="map"), Assistant(text="# Map"), User(text="where is x?", kind="mail")]
    )
    assert again.task == "where is x?" and list(again.after) == []


def test_a_question_after_a_map_is_answered_in_the_same_conversation() -> None:
    async def story() -> str:
        async with Retinue() as retinue:
            agent = explorer()
            first = await retinue.run(agent, "map this repository", cwd=str(TREES / "go"))
            id = await retinue.resume(first.id, "where are retries done?", cwd=str(TREES / "go"))
            outcome = (await retinue.wait(id))[id]
            return outcome.text if outcome else ""

    assert "## 1. internal/queue/retry.go" in asyncio.run(story())


def test_a_call_is_made_once_whatever_it_returned() -> None:
    args = '{"path": "x"}'
    messages = [
        User(text="t"),
        Assistant(calls=(Call(id="1", name="read", args=args),)),
        Result(call_id="1", text="no", error=True),
    ]
    book = KnownAnswers(assignment(messages), ())
    got = book.ask("read", path="x")
    assert got is not None and got.error and book.pending == []


@pytest.mark.parametrize(
    "note",
    [
        "\n[truncated: 9 of 109 characters hidden; full text in artifact abc]",
        "\n[cut: 9 of 109 characters are not shown; the whole is in artifact abc]",
        "\n... (truncated)\n(full text, 109 bytes, in artifact abc)",
        "\n... (truncated)\n(the whole, 109 bytes, is in artifact abc)",
    ],
)
def test_notes_of_older_conversations_are_read_like_those_of_today(note: str) -> None:
    text = "x" * 100 + note
    mark = CUT.search(text) or CUT_SHORT.search(text)
    assert is_cut(text) and mark is not None and mark.groups() == ("109", "abc")
