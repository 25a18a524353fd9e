"""Lines of stream-json, from items that were recorded: the same items give the same lines."""

from __future__ import annotations

from typing import Any

from retinue.core.events import (
    ActionsReturned,
    LogEntry,
    ModelFailed,
    Replied,
    StepTaken,
    TextReturned,
)
from retinue.core.messages import AssistantMessage, ModelReply, ToolCall, ToolMessage, UserMessage
from retinue.core.spec import Actions, ParentCall, RunRequest, RunSpec
from retinue.core.state import Ended, Run, RunRecord, Thinking
from retinue.core.values import Ending, Usage
from retinue.host.tree_items import (
    MessageAdded,
    RunAdded,
    RunChanged,
    Stepped,
    StoredRun,
    TextArrived,
    TreeItem,
)
from retinue.tree_record import TreeRecord
from retinue.view.stream_json import StreamHeader, StreamJsonWriter, lines

ROOT, CHILD = "root-run", "child-run"
TOP = RunSpec(
    id=ROOT,
    request=RunRequest(agent="main-0a1b2c3d", task="go", label="main", cwd="/work"),
    root=ROOT,
    model="p:m",
)
BELOW = RunSpec(
    id=CHILD,
    request=RunRequest(agent="main-0a1b2c3d.delegate", task="look", label="looker"),
    root=ROOT,
    parent=ROOT,
    depth=1,
    created_at=1_200,
    parent_call=ParentCall(turn=1, index=0, item=0, call_id="c1", tool="delegate_tasks"),
    model="p:m",
)
THINKING = Thinking(attempt=1, purpose="turn", hold=(0, 0, 0, 0), max_output=9)
USAGE = Usage(input=100, output=20, cache_read=60, turns=1)


def ended(spec: RunSpec, state: Any, at: int, **fields: Any) -> RunRecord:
    ending = Ending(state=state, at=at, **fields)
    run = Run(
        id=spec.id,
        state=Ended(ending=ending),
        turn=2,
        usage=USAGE,
        model_used="m",
        started_at=1_000,
    )
    return RunRecord(spec, run)


def step(seq: int, run: str, at: int, event: Any, stale: str = "") -> Stepped:
    return Stepped(seq=seq, entry=LogEntry(run=run, at=at, event=event, stale=stale))


def recorded() -> tuple[list[TreeItem], TreeRecord]:
    delegating = AssistantMessage(
        text="I delegate.",
        calls=(ToolCall(id="c1", name="delegate_tasks", arguments_json='{"n":1}'),),
    )
    looking = AssistantMessage(
        calls=(ToolCall(id="d1", name="write", arguments_json='{"path":"a"}'),)
    )
    replied = Replied(
        attempt=1, reply=ModelReply(message=delegating, usage=USAGE, stop="calls", model="m")
    )
    looked = Replied(
        attempt=1, reply=ModelReply(message=looking, usage=USAGE, stop="calls", model="m")
    )
    last = Replied(
        attempt=2,
        reply=ModelReply(message=AssistantMessage(text="All done."), usage=USAGE, model="m"),
    )
    orders = ActionsReturned(
        turn=1, index=0, call_id="c1", name="delegate_tasks", actions=Actions()
    )
    back = TextReturned(turn=1, index=0, call_id="d1", name="write", text="Denied.", error=True)
    child, top = (
        ended(BELOW, "failed", 1_800, stop="sub_agent_error", error="no"),
        ended(TOP, "completed", 2_000, stop="done", text="All done."),
    )
    items: list[TreeItem] = [
        RunAdded(spec=TOP),
        MessageAdded(run=ROOT, n=0, message=UserMessage(text="go")),
        step(3, ROOT, 1_050, ModelFailed(attempt=1, kind="overloaded", message="busy", retry=True)),
        step(4, ROOT, 1_100, replied),
        MessageAdded(run=ROOT, n=1, message=delegating),
        step(5, ROOT, 1_150, orders),
        RunAdded(spec=BELOW),
        RunChanged(row=StoredRun(spec=BELOW, run=Run(id=CHILD, state=THINKING))),
        TextArrived(run=CHILD, attempt=1, text="I lo"),
        step(6, CHILD, 1_400, looked),
        MessageAdded(run=CHILD, n=1, message=looking),
        step(7, CHILD, 1_500, back),
        step(8, CHILD, 1_550, back, stale="it was told before"),
        MessageAdded(
            run=CHILD,
            n=2,
            message=ToolMessage(
                call_id="d1", name="write", text="Denied.", error=True, denied=True
            ),
        ),
        RunChanged(row=StoredRun.of(child)),
        MessageAdded(
            run=ROOT,
            n=2,
            message=ToolMessage(call_id="c1", name="delegate_tasks", text="it failed"),
        ),
        step(9, ROOT, 1_990, last),
        MessageAdded(run=ROOT, n=3, message=AssistantMessage(text="All done.")),
    ]
    return items, TreeRecord(rows=(top, child))


def told(**head: Any) -> list[dict[str, Any]]:
    items, final = recorded()
    return list(
        lines(
            StreamHeader(tools=("read",), agents=("critic",), mode="manual", **head), items, final
        )
    )


def test_the_lines_are_those_that_programs_know() -> None:
    kinds = [(x["type"], x.get("subtype"), x["agent_id"]) for x in told()]
    assert kinds == [
        ("system", "init", ROOT),
        ("user", None, ROOT),
        ("system", "api_retry", ROOT),
        ("assistant", None, ROOT),
        ("system", "task_started", CHILD),
        ("system", "task_updated", CHILD),
        ("system", "task_progress", CHILD),
        ("assistant", None, CHILD),
        ("user", None, CHILD),
        ("system", "task_notification", CHILD),
        ("user", None, ROOT),
        ("assistant", None, ROOT),
        ("result", "success", ROOT),
    ]


def test_each_line_says_whose_it_is_and_when() -> None:
    for x in told():
        assert x["session_id"] == ROOT
        below = x["agent_id"] == CHILD
        assert (x["parent_agent_id"], x["depth"]) == ((ROOT, 1) if below else (None, 0))
        assert x.get("parent_tool_use_id") == (
            "c1" if below and x["type"] in ("assistant", "user") else None
        )
    assert [x["seq"] for x in told()] == [0, 0, 3, 4, 5, 5, 6, 6, 8, 8, 8, 9, 9]


def test_the_first_line_describes_the_run() -> None:
    first = told()[0]
    assert (first["cwd"], first["model"], first["permissionMode"]) == ("/work", "p:m", "manual")
    assert (first["tools"], first["agents"], first["mcp_servers"]) == (["read"], ["critic"], [])


def test_a_reply_has_its_content_its_stop_and_its_usage() -> None:
    message = next(x["message"] for x in told() if x["type"] == "assistant")
    assert message["content"] == [
        {"type": "text", "text": "I delegate."},
        {"type": "tool_use", "id": "c1", "name": "delegate_tasks", "input": {"n": 1}},
    ]
    assert (message["stop_reason"], message["model"]) == ("tool_use", "m")
    assert (
        message["usage"]["input_tokens"] == 40 and message["usage"]["cache_read_input_tokens"] == 60
    )


def test_a_sub_agent_is_told_of_from_its_start_to_its_end() -> None:
    tasks = {x["subtype"]: x for x in told() if x.get("task_id") == CHILD}
    assert (tasks["task_started"]["description"], tasks["task_started"]["tool_use_id"]) == (
        "looker",
        "c1",
    )
    assert tasks["task_updated"]["patch"] == {"status": "running"}
    assert tasks["task_progress"]["last_tool_name"] == "write"
    spent = {"total_tokens": 120, "estimated_tokens": 0, "tool_uses": 0, "duration_ms": 200}
    assert tasks["task_progress"]["usage"] == spent
    assert (tasks["task_notification"]["status"], tasks["task_notification"]["summary"]) == (
        "failed",
        "no",
    )


def test_the_result_has_everything_that_was_spent_and_refused() -> None:
    result = told()[-1]
    assert (result["result"], result["is_error"], result["num_turns"]) == ("All done.", False, 2)
    assert (result["duration_ms"], result["duration_api_ms"]) == (1_000, 1_090)
    assert result["permission_denials"] == [
        {"tool_name": "write", "tool_use_id": "d1", "tool_input": {"path": "a"}, "agent_id": CHILD}
    ]
    assert result["subagent_stats"] == {
        "spawned": 1,
        "requested": {"background": 0, "foreground": 1},
        "max_depth": 1,
        "completed": 0,
        "failed": 1,
        "killed": {"parent": 0, "user": 0, "system": 0},
        "by_type": {"main.delegate": 1},
    }
    assert result["modelUsage"]["m"] == {
        "inputTokens": 80,
        "outputTokens": 40,
        "cacheReadInputTokens": 120,
        "cacheCreationInputTokens": 0,
        "costUSD": 0.0,
        "costIsKnown": True,
    }


def test_text_as_it_comes_is_told_only_when_asked_for() -> None:
    streamed = [x for x in told(deltas=True) if x["type"] == "stream_event"]
    assert [x["event"]["delta"]["text"] for x in streamed] == ["I lo"]


def test_ends_have_the_subtypes_that_programs_know() -> None:
    for state, stop, subtype in (
        ("incomplete", "turn_limit", "error_max_turns"),
        ("incomplete", "usd_budget", "error_max_budget_usd"),
        ("timed_out", "deadline", "error_timeout"),
        ("cancelled", "cancelled", "error_cancelled"),
        ("failed", "server_error", "error_during_execution"),
    ):
        (result,) = lines(
            StreamHeader(), [], TreeRecord(rows=(ended(TOP, state, 2_000, stop=stop, error="why"),))
        )
        assert (result["subtype"], result["is_error"], result["result"]) == (subtype, True, "why")


def test_what_a_step_asks_is_a_line_and_a_step_that_asks_nothing_is_none() -> None:
    writer = StreamJsonWriter(StreamHeader())
    spec = RunSpec(id="r", root="r", request=RunRequest(agent="a", task="t"))
    assert [line["subtype"] for line in writer.lines(RunAdded(spec=spec))] == ["init"]

    def told(seq: int, **fields: str) -> list[dict[str, object]]:
        step = StepTaken(turn=1, index=0, call_id="c1", name="choose", step=f"s{seq}", **fields)  # type: ignore[arg-type]
        return list(writer.lines(Stepped(seq=seq, entry=LogEntry(run="r", at=1, event=step))))

    (line,) = told(1, question="Which colour?")
    assert (line["subtype"], line["question"]) == ("needs_input", "Which colour?")
    assert told(2) == []
