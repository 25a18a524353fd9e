"""What a model is shown is valid for every provider, whatever was lost; and a fork copies nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.values import Assistant, Call, Message, Result, User
from retinue.runtime.context import MISSING, Conversation, view

IDS = st.sampled_from(["a", "b", "c", "d"])
CALLS = st.lists(IDS, max_size=4, unique=True).map(lambda ids: tuple(Call(id=i, name=f"tool_{i}") for i in ids))
MESSAGES = st.lists(
    st.one_of(
        st.builds(User, text=st.text(max_size=5)),
        st.builds(Assistant, text=st.text(max_size=5), calls=CALLS),
        st.builds(Result, call_id=IDS, text=st.text(max_size=5)),
    ),
    max_size=30,
)


def of(messages: list[Message]) -> Conversation:
    conversation = Conversation()
    for message in messages:
        conversation.append(message)
    return conversation


def assert_valid(shown: list[Message]) -> None:
    """Each call has one result, right behind it, in the order of the calls; there are no other results."""
    owed: list[str] = []
    for message in shown:
        if isinstance(message, Result):
            assert owed
            assert message.call_id == owed.pop(0)
            continue
        assert owed == []
        if isinstance(message, Assistant):
            owed = [c.id for c in message.calls]
    assert owed == []


@settings(max_examples=200, deadline=None, derandomize=True)
@given(MESSAGES, st.integers(0, 30), st.integers(0, 30))
def test_any_window_on_any_history_is_valid(messages: list[Message], start: int, stop: int) -> None:
    assert_valid(view(of(messages), start, stop))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(MESSAGES)
def test_a_valid_history_is_shown_as_it_is(messages: list[Message]) -> None:
    shown = view(of(messages), 0, len(messages))
    assert view(of(shown), 0, len(shown)) == shown


@settings(max_examples=200, deadline=None, derandomize=True)
@given(MESSAGES)
def test_what_was_said_is_all_there(messages: list[Message]) -> None:
    shown = view(of(messages), 0, len(messages))
    assert [m for m in shown if not isinstance(m, Result)] == [m for m in messages if not isinstance(m, Result)]
    for message in shown:
        assert not isinstance(message, Result) or message.text == MISSING or message in messages


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(MESSAGES, min_size=1, max_size=5), st.data())
def test_a_fork_reads_as_if_it_were_copied(parts: list[list[Message]], data: st.DataObject) -> None:
    conversation, copied = of(parts[0]), list(parts[0])
    for own in parts[1:]:
        length = data.draw(st.integers(0, len(copied)))
        conversation, copied = Conversation(conversation, length), copied[:length] + own
        for message in own:
            conversation.append(message)
        assert conversation.own == own
    start, stop = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 40))
    assert len(conversation) == len(copied)
    assert list(conversation.read(start, stop)) == copied[start:stop]


def test_results_are_sorted_by_their_calls() -> None:
    said = Assistant(calls=(Call(id="a", name="x"), Call(id="b", name="y")))
    late, early = Result(call_id="a", text="1"), Result(call_id="b", text="2")
    assert view(of([said, early, late]), 0, 3) == [said, late, early]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    said = Assistant(calls=(Call(id="a", name="x"),))
    shown = view(of([said, User(text="hurry")]), 0, 2)
    assert shown == [said, Result(call_id="a", name="x", text=MISSING, error=True), User(text="hurry")]


def test_the_first_result_of_a_call_stands() -> None:
    said = Assistant(calls=(Call(id="a", name="x"),))
    one, two = Result(call_id="a", text="1"), Result(call_id="a", text="2")
    assert view(of([said, one, two]), 0, 3) == [said, one]


def test_calls_of_one_reply_that_share_an_id_have_a_result_each() -> None:
    """Models do that; a provider counts the calls."""
    said = Assistant(calls=(Call(id="a", name="x"), Call(id="a", name="y")))
    shown = view(of([said, Result(call_id="a", text="1"), Result(call_id="a", text="2")]), 0, 3)
    assert [m.text for m in shown] == ["", "1", "2"]
