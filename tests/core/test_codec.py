"""Everything that is stored comes back as it was."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.effects import (
    AbortRun,
    CallModel,
    CallTool,
    ChildOutcome,
    Effect,
    FormatResults,
    JoinedCall,
    ScheduleDelivery,
    SendDelivery,
)
from retinue.core.events import AnyEvent, LogEntry
from retinue.core.ids import digest, run_id
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from retinue.core.spec import History, Lane, RunRequest, RunSpec
from retinue.core.state import (
    AnyState,
    Asking,
    Breaker,
    Ended,
    OpenCalls,
    Question,
    Queued,
    Run,
    Stopping,
    Thinking,
    Waiting,
    Working,
)
from retinue.core.values import Artifact, Budget, Ending, Mail, Origin, Permissions, Usage
from retinue.formats.fair_cut import clip
from tests.core.driver import Story, call, hand, through_json
from tests.core.test_terminal import EVERY_EVENT, name_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT = st.integers(-(2**53), 2**53)
ENDING = st.builds(
    Ending,
    state=st.sampled_from(
        ["completed", "incomplete", "failed", "timed_out", "cancelled", "interrupted"]
    ),
    stop=TEXT,
    text=TEXT,
    error=TEXT,
    data=st.recursive(
        st.none() | st.booleans() | INT | TEXT, lambda d: st.lists(d) | st.dictionaries(TEXT, d)
    ),
    artifacts=st.lists(st.builds(Artifact, path=TEXT, size=INT, sha256=TEXT), max_size=2).map(
        tuple
    ),
    at=INT,
)
QUESTION = st.builds(
    Question,
    index=INT,
    id=TEXT,
    call_id=TEXT,
    text=TEXT,
    kind=st.sampled_from(["question", "permission"]),
)
CALLS = st.builds(
    OpenCalls,
    message=INT,
    count=INT,
    open=st.integers(0, 2**64),
    tools=INT,
    asks=INT,
    pause=st.booleans(),
    questions=st.lists(QUESTION, max_size=2).map(tuple),
)
AMOUNTS = st.tuples(INT, INT, INT, INT)
MAYBE = st.none() | INT
STATES = st.one_of(
    st.builds(Queued, lane=INT, back=st.booleans(), ticket=INT),
    st.builds(
        Thinking,
        attempt=INT,
        purpose=st.sampled_from(["turn", "final", "grace", "summary", "announce", "compact"]),
        hold=AMOUNTS,
        max_output=INT,
        tries=INT,
        retry_at=MAYBE,
    ),
    st.builds(Working, calls=CALLS, has_slots=st.booleans()),
    st.builds(Waiting, calls=st.none() | CALLS, all=st.booleans()),
    st.builds(Asking, calls=CALLS),
    st.builds(Stopping, ending=ENDING),
    st.builds(Ended, ending=ENDING),
)
USAGE = st.builds(Usage, **dict.fromkeys(Usage.__struct_fields__, INT))
ACCESS = st.builds(
    Permissions,
    tools=st.none() | st.lists(TEXT).map(tuple),
    depth=MAYBE,
    may_spawn=st.booleans(),
    expires=MAYBE,
)
RUNS = st.builds(
    Run,
    id=TEXT,
    state=STATES,
    usage=USAGE,
    last_text=TEXT,
    deadline=MAYBE,
    permissions=st.none() | ACCESS,
    breaker=st.none() | st.builds(Breaker, signature=TEXT, count=INT, until=INT),
    **dict.fromkeys(
        ("version", "attempt", "turn", "length", "start", "context", "new_bytes", "epoch"), INT
    ),
)
ORDERS = st.builds(
    RunRequest,
    agent=TEXT,
    task=TEXT,
    join=st.sampled_from(["call", "turn", "none"]),
    history=st.builds(History, kind=st.sampled_from(["none", "fork"]), text=TEXT, n=INT),
    permissions=ACCESS,
    budget=st.builds(
        Budget, tokens=st.none() | st.integers(0, 10), usd=st.none() | st.floats(0, 1e6)
    ),
    lanes=st.lists(st.builds(Lane, name=TEXT, size=st.integers(1, 1_000)), max_size=2).map(tuple),
    origin=st.none() | st.builds(Origin, channel=TEXT, user=TEXT),
)
SPECS = st.builds(RunSpec, id=TEXT, request=ORDERS, root=TEXT, permissions=ACCESS, created_at=INT)
MESSAGES = st.one_of(
    st.builds(
        UserMessage,
        text=TEXT,
        sender=TEXT,
        kind=st.sampled_from(["task", "mail", "news", "nudge", "summary"]),
    ),
    st.builds(
        AssistantMessage,
        text=TEXT,
        opaque=TEXT,
        calls=st.lists(st.builds(ToolCall, id=TEXT, name=TEXT, arguments_json=TEXT)).map(tuple),
    ),
    st.builds(ToolMessage, call_id=TEXT, text=TEXT, name=TEXT, error=st.booleans()),
)


def again(value: Any, type: Any) -> Any:
    data = msgspec.json.encode(value)
    back = msgspec.json.decode(data, type=type)
    assert msgspec.json.encode(back) == data
    return back


@pytest.mark.parametrize("event", EVERY_EVENT, ids=name_of)
def test_an_event_comes_back_as_it_was(event: AnyEvent) -> None:
    entry = LogEntry(run="r", at=7, event=event, stale="why")
    assert again(event, AnyEvent) == event
    assert again(entry, LogEntry) == entry
    assert f'"event":"{event.__struct_config__.tag}"' in msgspec.json.encode(event).decode()


EFFECTS: list[Effect] = [
    CallModel(run="r", attempt=1, purpose="final", max_output=9, key="k"),
    CallTool(run="r", turn=1, index=2, call=call(), key="k", at=3, again=True),
    FormatResults(
        run="r",
        turn=1,
        calls=(
            JoinedCall(
                index=0,
                call_id="c",
                name="n",
                outcomes=(
                    ChildOutcome(
                        id="x",
                        label="l",
                        task="t",
                        item=0,
                        ending=Ending(state="failed", stop="s"),
                        usage=Usage(input=1),
                        created_at=5,
                    ),
                ),
            ),
        ),
    ),
    AbortRun(run="r"),
    ScheduleDelivery(key="k", at=3),
    SendDelivery(key="k"),
]


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda e: type(e).__name__)
def test_an_effect_comes_back_as_it_was(effect: Effect) -> None:
    assert through_json(effect) == effect


@settings(max_examples=200, deadline=None, derandomize=True)
@given(STATES)
def test_a_state_comes_back_as_it_was(state: AnyState) -> None:
    assert again(state, AnyState) == state


@settings(max_examples=200, deadline=None, derandomize=True)
@given(RUNS)
def test_a_run_comes_back_as_it_was(run: Run) -> None:
    assert again(run, Run) == run


@settings(max_examples=200, deadline=None, derandomize=True)
@given(SPECS)
def test_a_spec_comes_back_as_it_was(spec: RunSpec) -> None:
    assert again(spec, RunSpec) == spec


@settings(max_examples=200, deadline=None, derandomize=True)
@given(MESSAGES)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert again(message, Message) == message


def test_every_value_of_a_long_story_comes_back_as_it_was() -> None:
    story = Story()
    story.start(origin=Origin(channel="c"), announce=True, budget=Budget(tokens=100_000, usd=1.0))
    a, b = story.spawning(
        "root", hand("a", budget=Budget(tokens=5_000)), hand("b", history=History(kind="fork"))
    )
    story.reply(a, "one", call())
    story.restart("pure")
    story.mail_to(b, "psst")
    story.cancel(a)
    story.reply(b, "two")
    story.reply(b, "three")
    story.reply("root", "done")
    assert story.leaks() == {}
    for values in (
        story.entries,
        story.effects,
        story.rows.values(),
        story.specs.values(),
        story.accounts.values(),
        story.deliveries.values(),
        [m for own in story.said.values() for m in own.values()],
    ):
        assert list(values)
        for value in values:
            assert through_json(value) == value


def test_a_small_value_is_small_on_the_wire() -> None:
    assert msgspec.json.encode(Mail(seq=1, text="x")) == b'{"seq":1,"text":"x"}'


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=50), st.integers(0, 60))
def test_a_cut_text_says_how_much_is_missing(text: str, cap: int) -> None:
    end = clip(text, cap, "sha")
    assert end == text if len(text) <= cap else f"{len(text) - cap} of {len(text)}" in end


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 2**48 - 1), st.lists(st.text() | st.integers()))
def test_an_id_is_a_sortable_uuid_that_can_be_made_again(at: int, parts: list) -> None:
    id = run_id(at, *parts)
    assert id == run_id(at, *parts)
    assert (len(id), id[14], id[19] in "89ab") == (36, "7", True)
    assert run_id(at, *parts) < run_id(at + 1, *parts) or at == 2**48 - 1
    assert len(digest(*parts)) == 32
