"""The other jobs, and how a task is understood."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from retinue import Retinue
from retinue.core.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from retinue.models.explorer.intent import read_intent, revision
from retinue.models.explorer.known_answers import (
    CUT,
    CUT_SHORT,
    KnownAnswers,
    assignment,
    is_cut,
)
from tests.explorer.oracle import wrong_places
from tests.explorer.world import TREES, copied, explore, explorer


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
        ("compare src/a and src/b", "map"),
        ("where do we compare versions?", "find"),
        ("write me a poem", "map"),
        ("job: find\nretries", "find"),
        ("--job review", "review"),
        ("job: Review\nthis", "review"),
    ],
)
def test_a_task_is_matched_to_a_job(task: str, job: str) -> None:
    assert read_intent(task).job == job


def test_what_is_no_job_is_mapped_and_that_is_said() -> None:
    report = asyncio.run(explore(TREES / "go", "write me a poem")).text
    assert "The task names none of them, so this is the map." in " ".join(report.split())
    report = asyncio.run(explore(TREES / "go", "job: sing\nla la")).text
    assert "unknown job `sing`. Known: map, find, review. This is `map`." in report


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
        ("review 3.1.2..3.1.3", "3.1.2..3.1.3"),
        ("review v1.0..v1.1.", "v1.0..v1.1"),
        ("review against the changelog", ""),
        ("review --output=/tmp/x", ""),
    ],
)
def test_the_revision_of_a_review_is_found_and_is_never_an_option(text: str, rev: str) -> None:
    assert revision(text) == rev


@pytest.mark.parametrize(
    ("task", "full"),
    [
        ("map this repository", False),
        ("map this repository in full", True),
        ("give me the full map", True),
        ("map this\n\ndetail: full", True),
        ("where is x --full", True),
        ("where is the full moon handled?", False),
    ],
)
def test_more_than_a_page_is_given_to_who_asks_for_it(task: str, full: bool) -> None:
    assert read_intent(task).full is full
    assert "detail:" not in read_intent(task).text


@pytest.mark.parametrize("dialect", ["", "fanout"])
def test_a_review_says_what_was_reviewed_and_when_nothing_was(dialect: str, tmp_path: Path) -> None:
    root = copied("go", tmp_path)
    report = asyncio.run(explore(root, "review my changes", dialect)).text
    assert report.startswith("# Review of the last commit, ") and "nothing is uncommitted" in report
    assert wrong_places(root, report) == []
    mail = root / "internal/mail/mail.go"
    text = mail.read_text(encoding="utf-8")
    mail.write_text(text + "\nfunc Extra() int { return 1 }\n", encoding="utf-8")
    report = asyncio.run(explore(root, "review my changes", dialect)).text
    assert report.startswith("# Review of uncommitted changes\n\nseverity: none\ncomplete: yes\n")
    assert "| added | `Extra` | internal/mail/mail.go:" in report
    assert wrong_places(root, report) == []
    report = asyncio.run(explore(root, "review nosuchbranch..HEAD", dialect)).text
    assert "severity: none\ncomplete: no\n\nNothing was reviewed. There is no commit" in report


def test_a_review_outside_of_git_is_a_clear_word(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    report = asyncio.run(explore(tmp_path, "review my changes")).text
    assert "complete: no\n\nNothing was reviewed. This is not a git working tree." in report


def test_a_person_who_writes_meanwhile_is_not_ignored_silently() -> None:
    work = assignment(
        [
            UserMessage(text="map this"),
            AssistantMessage(calls=(ToolCall(id="1", name="list", arguments_json="{}"),)),
            UserMessage(text="please skip the tests", kind="mail"),
            ToolMessage(call_id="1", text="a.py\t3"),
        ]
    )
    assert work.unread == ("please skip the tests",) and not work.stop
    assert assignment([UserMessage(text="map"), UserMessage(text="stop now", kind="mail")]).stop
    again = assignment(
        [
            UserMessage(text="map"),
            AssistantMessage(text="# Map"),
            UserMessage(text="where is x?", kind="mail"),
        ]
    )
    assert again.task == "where is x?" and list(again.after) == []


def test_a_question_after_a_map_is_answered_in_the_same_conversation() -> None:
    async def story() -> str:
        async with Retinue() as retinue:
            agent = explorer()
            first = await retinue.run(agent, "map this repository", cwd=str(TREES / "go"))
            id = await retinue.resume(first.id, "where are retries done?", cwd=str(TREES / "go"))
            outcome = await retinue.wait(id)
            return outcome.text if outcome else ""

    assert re.search(r"^1\. .* internal/queue/retry\.go:", asyncio.run(story()), re.MULTILINE)


def test_a_call_is_made_once_whatever_it_returned() -> None:
    args = '{"path": "x"}'
    messages = [
        UserMessage(text="t"),
        AssistantMessage(calls=(ToolCall(id="1", name="read", arguments_json=args),)),
        ToolMessage(call_id="1", text="no", error=True),
    ]
    book = KnownAnswers(assignment(messages), ())
    reply = book.ask("read", path="x")
    assert reply is not None and reply.error and book.pending == []


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
