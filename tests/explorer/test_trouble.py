"""Whatever the tools, the sub-agents or the limits do, a run ends, with what is known and what is
not."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Budget, Retinue, tool
from retinue.core.messages import AssistantMessage, ModelReply
from retinue.models.base import ModelRequest
from retinue.models.explorer import ExplorerModel
from retinue.testing import Scripted
from retinue.tools.families.profiles import family
from tests.explorer.oracle import wrong_places
from tests.explorer.world import DIALECTS, LOOKING, TREES, copied, explore, explorer

FOOTER = "offline, no model."
TASKS = (
    "map this repository",
    "where are retries handled?",
    "review my changes",
)
JUNK = ("garbage \x00 ::: [] {", "{}", "[" * 3_000, "a:b:c\n\t\n12\n" * 50, "\ufffd" * 100)


def broken(say: Callable[[], str]) -> list[Any]:
    """The tool that looks at files, with another's answers."""

    @tool(name="symbols", risk="read", restart="pure")
    async def answer(
        question: str = "", text: str = "", path: str = "", area: str = "", full: bool = False
    ) -> str:
        """Answer."""
        return say()

    return [answer]


def is_signed(report: str) -> bool:
    """Whether it says at its end that no model wrote it."""
    return FOOTER in report or "\n---\noffline, no model." in report


def fail() -> str:
    raise RuntimeError("the disk is on fire")


@pytest.mark.parametrize("dialect", ["", "fanout", "agent"])
@pytest.mark.parametrize("task", TASKS)
def test_tools_that_always_fail_end_in_an_honest_report(
    task: str, dialect: str, tmp_path: Path
) -> None:
    outcome = asyncio.run(explore(tmp_path, task, dialect, tools=broken(fail)))
    assert outcome.state == "completed" and is_signed(outcome.text)
    assert outcome.usage.calls < 20 and outcome.usage.turns < 12
    assert ":1" not in outcome.text.partition("---")[0]


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("task", TASKS)
def test_tools_that_return_garbage_end_in_an_honest_report(
    task: str, junk: str, tmp_path: Path
) -> None:
    outcome = asyncio.run(explore(tmp_path, task, tools=broken(lambda: junk)))
    assert outcome.state == "completed" and is_signed(outcome.text)
    assert outcome.usage.calls < 60


@pytest.mark.parametrize("task", TASKS)
def test_outputs_that_are_huge_or_cut_end_in_an_honest_report(task: str, tmp_path: Path) -> None:
    huge = json.dumps([f"src/pkg{n // 50}/module{n}.py:{n}" for n in range(4_000)])
    end = '{"name": "x", "roles": {"source": 1}\n[2 of 90000 shown; raise limit]'
    for text in (huge, end):
        outcome = asyncio.run(explore(tmp_path, task, tools=broken(lambda text=text: text)))  # type: ignore[misc]
        assert outcome.state == "completed" and is_signed(outcome.text)
        assert outcome.usage.calls < 300


@pytest.mark.parametrize("dialect", ["", *DIALECTS])
def test_no_tools_to_look_with_is_said(dialect: str, tmp_path: Path) -> None:
    outcome = asyncio.run(explore(tmp_path, "map this", dialect, tools=[]))
    assert "The tool `symbols` is not offered to this run" in outcome.text


class Sabotaged(ExplorerModel):
    """Sub-agents whose task has one of the words go wrong."""

    def __init__(self, how: Callable[[ModelRequest], AssistantMessage], *words: str) -> None:
        super().__init__()
        self.how, self.words = how, words

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        task = request.messages[0].text
        if "explorer: " in task and any(w in task.partition("explorer: ")[0] for w in self.words):
            return ModelReply(message=self.how(request), model=request.model)
        return await super().complete(request, emit)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_sub_agent_that_talks_garbage_is_missing_and_the_rest_stands(dialect: str) -> None:
    async def story() -> str:
        model = Sabotaged(
            lambda _: AssistantMessage(text="I would rather not."), "src/ledgerly/storage/"
        )
        async with Retinue() as retinue:
            agent = explorer(dialect, model=model)
            return (await retinue.run(agent, "map this repository", cwd=str(TREES / "python"))).text

    report = asyncio.run(story())
    assert "`src/ledgerly/storage/` is missing from this report" in report
    assert "| src/ledgerly/storage/ | 3 | 63 | ? | ? | not explored |" in report
    assert "| src/ledgerly/model/ | 4 | 57 | 5 | 4 |" in report
    assert wrong_places(TREES / "python", report) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_sub_agent_that_fails_is_missing_and_the_rest_stands(dialect: str) -> None:
    def refuse(request: ModelRequest) -> AssistantMessage:
        raise ValueError("out of order")

    async def story() -> str:
        async with Retinue() as retinue:
            agent = explorer(dialect, model=Sabotaged(refuse, "internal/mail/", "history"))
            return (await retinue.run(agent, "map this repository", cwd=str(TREES / "go"))).text

    report = asyncio.run(story())
    assert "`internal/mail/` is missing from this report" in report
    assert "`history` is missing from this report" in report and "## History" not in report
    assert "| internal/queue/ | 2 | 63 | 1 | 4 |" in report


def test_rows_of_a_sub_agent_that_lies_about_shapes_are_left_out() -> None:
    rows = [
        '["area", 7, "x"]',
        '["area", {"name": "src/ledgerly/model/", "n_files": "many"}]',
        '["area", {"name": "elsewhere/", "n_files": 1, "n_lines": 1, "n_types": 999}]',
        '["history", {"n_commits": "all"}]',
        '{"a": 1}',
        '["end","x",5,1,true]',
    ]
    lie = "\n".join(["```findings", *rows, "```"])

    async def story() -> str:
        async with Retinue() as retinue:
            agent = explorer(
                "delegate",
                model=Sabotaged(
                    lambda _: AssistantMessage(text=lie), "Explore", "tests", "history"
                ),
            )
            return (await retinue.run(agent, "map this repository", cwd=str(TREES / "python"))).text

    report = asyncio.run(story())
    assert FOOTER in report and wrong_places(TREES / "python", report) == []
    assert "999" not in report and "elsewhere" not in report and "not explored" in report


@pytest.mark.parametrize("turns", [1])
def test_a_limit_of_turns_gives_what_is_known_by_then(turns: int) -> None:
    outcome = asyncio.run(
        explore(TREES / "python", "map this repository", max_turns=turns, grace_turns=1)
    )
    assert outcome.stop == "turn_limit"
    assert (
        "a limit was reached, so the report has only what was known by then" in outcome.text
        and is_signed(outcome.text)
    )
    assert wrong_places(TREES / "python", outcome.text) == []


@pytest.mark.parametrize("tokens", [400, 1_500, 4_000, 9_000])
def test_a_budget_binds_and_yields_a_partial_report(tokens: int) -> None:
    outcome = asyncio.run(
        explore(TREES / "python", "map this repository", budget=Budget(tokens=tokens))
    )
    assert outcome.usage.tokens <= tokens and outcome.state == "incomplete"
    assert wrong_places(TREES / "python", outcome.text) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_budget_binds_the_whole_tree_of_sub_agents(dialect: str) -> None:
    outcome = asyncio.run(
        explore(TREES / "python", "map this repository", dialect, budget=Budget(tokens=30_000))
    )
    assert outcome.state in ("completed", "incomplete")
    assert wrong_places(TREES / "python", outcome.text) == []


@pytest.mark.parametrize("calls", [0, 1, 3, 10])
def test_a_budget_of_calls_leads_to_gaps_and_not_to_a_loop(calls: int) -> None:
    outcome = asyncio.run(
        explore(TREES / "python", "map this repository", budget=Budget(calls=calls))
    )
    assert outcome.usage.calls <= calls and outcome.usage.turns < 20
    assert is_signed(outcome.text) and wrong_places(TREES / "python", outcome.text) == []


@pytest.mark.parametrize(
    "settings", [{"max_tasks": 1}, {"explore_turns": 1}, {"explore_turns": 2, "grace_turns": 0}]
)
def test_a_family_with_narrow_settings_is_lived_with(settings: dict[str, Any]) -> None:
    async def story() -> str:
        async with Retinue() as retinue:
            agent = explorer("fanout", **settings)
            return (await retinue.run(agent, "map this repository", cwd=str(TREES / "rust"))).text

    report = asyncio.run(story())
    assert FOOTER in report and wrong_places(TREES / "rust", report) == []


def test_a_lead_that_may_start_nobody_does_it_all_by_itself() -> None:
    async def story() -> str:
        async with Retinue() as retinue:
            limits = {"concurrency_limits": {"max_children_per_agent": 0}}
            agent = explorer("agent", **limits)
            return (await retinue.run(agent, "map this repository", cwd=str(TREES / "go"))).text

    assert "| internal/queue/ | 2 | 63 | 1 | 4 |" in asyncio.run(story())


def test_a_result_that_must_have_a_shape_ends_in_an_error_with_the_report() -> None:
    async def story() -> Any:
        async with Retinue() as retinue:
            agent = Agent("typed", model=ExplorerModel(), tools=LOOKING, output=dict[str, int])
            return await retinue.run(agent, "map this repository", cwd=str(TREES / "go"))

    outcome = asyncio.run(story())
    assert outcome.state == "failed" and "# postbox" in outcome.error


def test_a_result_that_may_be_a_text_is_handed_in() -> None:
    async def story() -> Any:
        async with Retinue() as retinue:
            agent = Agent("texts", model=ExplorerModel(), tools=LOOKING, output=str)
            return await retinue.run(agent, "map this repository", cwd=str(TREES / "go"))

    outcome = asyncio.run(story())
    assert outcome.state == "completed" and outcome.text.startswith("# postbox")


def test_an_empty_folder_and_one_without_source_are_reported_as_such(tmp_path: Path) -> None:
    assert "This directory is empty" in asyncio.run(explore(tmp_path, "map this")).text
    (tmp_path / "notes.txt").write_text("hello\n")
    report = asyncio.run(explore(tmp_path, "map this", "fanout")).text
    assert "No source in a language that is parsed." in report and "(1 .txt)" in report


def test_one_huge_file_is_one_area(tmp_path: Path) -> None:
    lines = [
        f"class Shape{n}:\n    def area(self) -> int:\n        return {n}\n" for n in range(4_000)
    ]
    (tmp_path / "all.py").write_text("\n".join(lines))
    report = asyncio.run(explore(tmp_path, "map this", "fanout")).text
    assert "4,000 classes, 4,000 methods" in report and "| all.py | 15,999 |" in report
    assert wrong_places(tmp_path, report) == []


def test_names_with_odd_characters_break_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "src" / "we|ird `name`" / "日本"
    folder.mkdir(parents=True)
    (folder / "ma in.py").write_text(
        '"""Has | pipes and `ticks` <b>and</b> tags."""\n\n\nclass Größe:\n    pass\n'
    )
    (tmp_path / "src" / "b.py").write_text("import sys\n")
    report = asyncio.run(explore(tmp_path, "map this", "delegate")).text
    assert FOOTER in report and "Has \\| pipes" in report


def test_an_llm_lead_can_hand_parts_to_explorers() -> None:
    """The children of another model are explorers as well, when their task is an order for one."""

    async def story() -> str:
        from retinue.testing import call

        order = 'Look.\nexplorer: {"part":"history","name":"history"}'
        lead = Scripted(
            [call("spawn_agents", tasks=[{"task": order, "model": "offline/explorer"}]), "Thanks."],
            name="lead",
        )
        async with Retinue(agents=[Agent("other", model=ExplorerModel())]) as retinue:
            agent = Agent("lead", model=lead, tools=LOOKING, families=[family("fanout")])
            return (await retinue.run(agent, "Go.", cwd=str(TREES / "go"))).text

    assert asyncio.run(story()) == "Thanks."


def test_what_is_not_committed_in_a_repository_without_commits_can_be_reviewed(
    tmp_path: Path,
) -> None:
    root = copied("go", tmp_path)
    subprocess.run(["rm", "-rf", ".git"], cwd=root, check=True)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    report = asyncio.run(explore(root, "review my changes")).text
    assert "Nothing was reviewed. There is no commit yet" in report
    outside = tmp_path / "plain"
    outside.mkdir()
    report = asyncio.run(explore(outside, "review my changes")).text
    assert "severity: none\ncomplete: no" in report
