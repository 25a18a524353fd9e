"""What a model is shown is valid for every provider, whatever was lost; and a fork copies
nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from retinue.core.history import LEFT_OUT, MISSING, Conversation, ShownMessages, view
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

IDS = st.sampled_from(["a", "b", "c", "d"])
CALLS = st.lists(IDS, max_size=4, unique=True).map(
    lambda ids: tuple(ToolCall(id=i, name=f"tool_{i}") for i in ids)
)
MESSAGES = st.lists(
    st.one_of(
        st.builds(UserMessage, text=st.text(max_size=5)),
        st.builds(AssistantMessage, text=st.text(max_size=5), calls=CALLS),
        st.builds(ToolMessage, call_id=IDS, text=st.text(max_size=5)),
    ),
    max_size=30,
)


def of(messages: list[Message]) -> Conversation:
    conversation = Conversation()
    for message in messages:
        conversation.append(message)
    return conversation


def is_valid(messages: list[Message]) -> bool:
    """A user's message is the first. Each call has one result, right behind it, in the order of the
    calls; there are no other results."""
    owed: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if not owed or message.call_id != owed.pop(0):
                return False
            continue
        if owed:
            return False
        if isinstance(message, AssistantMessage):
            owed = [c.id for c in message.calls]
    return not owed and (not messages or isinstance(messages[0], UserMessage))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(MESSAGES, st.integers(0, 30), st.integers(0, 30))
def test_any_window_on_any_history_is_valid(messages: list[Message], start: int, stop: int) -> None:
    assert is_valid(view(of(messages), start, stop))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(MESSAGES, st.lists(st.tuples(st.integers(0, 8), st.integers(0, 30)), max_size=12))
def test_what_was_shown_before_changes_nothing_in_what_is_shown_next(
    messages: list[Message], windows: list[tuple[int, int]]
) -> None:
    conversation = Conversation()
    for n, message in enumerate(messages, 1):
        conversation.append(message)
        earlier = view(conversation, 0, n)
        texts = [*earlier]
        assert texts == view(of(messages[:n]), 0, n)
        for start, stop in windows:
            assert view(conversation, start, stop) == view(of(messages[:n]), start, stop)
        assert earlier == texts, "what a model was given stays as it was"


@settings(max_examples=200, deadline=None, derandomize=True)
@given(MESSAGES)
def test_a_valid_history_is_shown_as_it_is(messages: list[Message]) -> None:
    rows = view(of(messages), 0, len(messages))
    assert view(of(rows), 0, len(rows)) == rows


@settings(max_examples=200, deadline=None, derandomize=True)
@given(MESSAGES)
def test_what_was_said_is_all_there(messages: list[Message]) -> None:
    rows = [m for m in view(of(messages), 0, len(messages)) if m is not LEFT_OUT]
    text = [m for m in messages if not isinstance(m, ToolMessage)]
    assert [_nameless(m) for m in rows if not isinstance(m, ToolMessage)] == [
        _nameless(m) for m in text
    ]
    results = [_nameless(m) for m in messages]
    for message in rows:
        assert (
            not isinstance(message, ToolMessage)
            or message.text == MISSING
            or _nameless(message) in results
        )


def _nameless(message: Message) -> Message:
    """Ids that an earlier call has are replaced; all else stays."""
    if isinstance(message, ToolMessage):
        return replace(message, call_id="")
    return (
        replace(message, calls=tuple(replace(c, id="") for c in message.calls))
        if isinstance(message, AssistantMessage)
        else message
    )


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


def test_what_is_cut_in_the_middle_of_a_turn_loses_its_results_and_says_that_it_was_cut() -> None:
    one = of(
        [
            UserMessage(text="go"),
            AssistantMessage(calls=(ToolCall(id="a", name="x"),)),
            ToolMessage(call_id="a", text="1"),
        ]
    )
    assert view(one, 2, 3) == []
    one.append(AssistantMessage(text="done"))
    assert view(one, 2, 4) == [LEFT_OUT, AssistantMessage(text="done")]
    one.append(UserMessage(text="again"))
    assert view(one, 4, 5) == [UserMessage(text="again")]
    fork = Conversation(one, 4)
    fork.append(UserMessage(text="fork"))
    assert view(fork, 2, 5) == [LEFT_OUT, AssistantMessage(text="done"), UserMessage(text="fork")]


def test_results_are_sorted_by_their_calls() -> None:
    message = AssistantMessage(calls=(ToolCall(id="a", name="x"), ToolCall(id="b", name="y")))
    late, early = ToolMessage(call_id="a", text="1"), ToolMessage(call_id="b", text="2")
    assert view(of([UserMessage(text="go"), message, early, late]), 1, 4) == [
        LEFT_OUT,
        message,
        late,
        early,
    ]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    message = AssistantMessage(calls=(ToolCall(id="a", name="x"),))
    rows = view(of([message, UserMessage(text="hurry")]), 0, 2)
    assert rows == [
        LEFT_OUT,
        message,
        ToolMessage(call_id="a", name="x", text=MISSING, error=True),
        UserMessage(text="hurry"),
    ]


def test_the_first_result_of_a_call_stands() -> None:
    message = AssistantMessage(calls=(ToolCall(id="a", name="x"),))
    one, two = ToolMessage(call_id="a", text="1"), ToolMessage(call_id="a", text="2")
    assert view(of([message, one, two]), 0, 3) == [LEFT_OUT, message, one]


def test_calls_of_one_reply_that_share_an_id_have_a_result_each() -> None:
    """Models do that; a provider counts the calls."""
    message = AssistantMessage(calls=(ToolCall(id="a", name="x"), ToolCall(id="a", name="y")))
    rows = view(
        of([message, ToolMessage(call_id="a", text="1"), ToolMessage(call_id="a", text="2")]), 0, 3
    )
    assert [m.text for m in rows[1:]] == ["", "1", "2"]


def test_what_a_dialect_keeps_is_what_it_would_make_of_the_whole() -> None:
    """Random conversations with missing and stray results, forks of forks (between units, as forks
    are), and views from the middle: the pieces that are kept join to what encoding the whole view
    gives, at every length."""
    results: list[str] = []

    def encode(unit: Sequence[Message]) -> bytes:
        results.append("")
        return "|".join(f"{type(m).__name__}:{m.text}" for m in unit).encode()

    def whole(conversation: Conversation, start: int, stop: int) -> bytes:
        parts: list[list[Message]] = []
        for message in view(conversation, start, stop):
            if isinstance(message, ToolMessage):
                parts[-1].append(message)
            else:
                parts.append([message])
        return b",".join(encode(p) for p in parts)

    for seed in range(60):
        r = random.Random(seed)
        conversations = [Conversation()]
        for step in range(40):
            one = r.choice(conversations)
            if r.random() < 0.05 and len(one):
                text = list(one.read(0, len(one)))
                ends = [n for n in range(1, len(text)) if not isinstance(text[n], ToolMessage)]
                conversations.append(Conversation(one, r.choice([*ends, len(text)])))
                continue
            calls = tuple(
                ToolCall(id=f"c{step}{i}", name="t") for i in range(r.choice((0, 0, 1, 2, 3)))
            )
            one.append(
                r.choice(
                    (UserMessage(text=f"u{step}"), AssistantMessage(text=f"a{step}", calls=calls))
                )
            )
            for call in calls:
                if one.own[-1].__class__ is not UserMessage and r.random() < 0.8:
                    one.append(ToolMessage(call_id=call.id, text=f"r{call.id}"))
            if r.random() < 0.1:
                one.append(ToolMessage(call_id="stray", text="stray"))
            length = len(one) if r.random() < 0.8 else r.randint(one.base_length, len(one))
            for start in {0, r.randint(0, length)}:
                history = ShownMessages(one, start, length)
                want = whole(one, start, length)
                assert b",".join(history.encode("x", encode)) == want, (seed, step, start)
                assert list(history) == view(one, start, length)


def test_a_long_conversation_is_a_few_pieces_and_any_part_of_it_can_still_be_shown() -> None:
    def encode(unit: Sequence[Message]) -> bytes:
        return "|".join(m.text for m in unit).encode()

    one = Conversation()
    for n in range(300):
        one.append(UserMessage(text=f"{n} " + "x" * 1_000))
        if n % 7 == 0:
            ShownMessages(one, 0, len(one)).encode("x", encode)
    pieces = ShownMessages(one, 0, 300).encode("x", encode)
    whole = b",".join(encode([m]) for m in one.own)
    assert b",".join(pieces) == whole
    assert len(pieces) < 100
    for start, stop in ((0, 5), (3, 300), (150, 200), (299, 300), (0, 299)):
        part = b",".join(encode([m]) for m in one.own[start:stop])
        assert b",".join(ShownMessages(one, start, stop).encode("x", encode)) == part
    fork = Conversation(one, 120)
    fork.append(UserMessage(text="go"))
    assert b",".join(ShownMessages(fork, 0, 121).encode("x", encode)) == b",".join(
        encode([m]) for m in [*one.own[:120], UserMessage(text="go")]
    )


def test_each_unit_is_encoded_once_and_a_fork_encodes_nothing_again() -> None:
    numbers: list[int] = []

    def encode(unit: Sequence[Message]) -> bytes:
        numbers.append(len(unit))
        return b"{}"

    base = Conversation()
    for n in range(100):
        base.append(UserMessage(text=str(n)))
        ShownMessages(base, 0, len(base)).encode("x", encode)
    assert len(numbers) == 100
    forks = [Conversation(base, 100) for _ in range(10)]
    joined = []
    for fork in forks:
        fork.append(UserMessage(text="go"))
        pieces = ShownMessages(fork, 0, len(fork)).encode("x", encode)
        joined.append(pieces[0])
    assert len(numbers) == 110
    assert all(prefix is joined[0] for prefix in joined)


def test_after_a_compaction_and_between_forks_of_different_lengths_nothing_is_encoded_again() -> (
    None
):
    results: list[str] = []

    def encode(unit: Sequence[Message]) -> bytes:
        results.append(unit[0].text)
        return f"{unit[0].text} ".encode() + b"x" * 1_000

    one = Conversation()
    for n in range(400):
        one.append(UserMessage(text=str(n)))
        for start in (0, n // 2, max(0, n - 100)):
            ShownMessages(one, start, n + 1).encode("x", encode)
    assert results == [str(n) for n in range(400)]
    forks = [Conversation(one, length) for length in (100, 137, 200, 250, 300, 333)]
    for turn in range(5):
        for n, fork in enumerate(forks):
            fork.append(UserMessage(text=f"fork {n} {turn}"))
            messages = ShownMessages(fork, 50, len(fork))
            joined = b",".join(messages.encode("x", encode))
            assert [part.split()[0] for part in joined.split(b",")][: fork.base_length - 50] == [
                str(i).encode() for i in range(50, fork.base_length)
            ]
    assert len(results) == len(set(results)) == 400 + 5 * len(forks)


def test_an_incomplete_unit_is_written_again_when_complete_and_what_a_fork_was_shown_stays() -> (
    None
):
    def encode(unit: Sequence[Message]) -> bytes:
        return "|".join(m.text for m in unit).encode()

    one = of(
        [
            UserMessage(text="go"),
            AssistantMessage(
                text="call", calls=(ToolCall(id="a", name="x"), ToolCall(id="b", name="x"))
            ),
        ]
    )
    one.append(ToolMessage(call_id="stray", text="stray"))
    one.append(ToolMessage(call_id="b", text="two"))
    before = f"go,call|{MISSING}|two".encode()
    assert b",".join(ShownMessages(one, 0, 4).encode("x", encode)) == before
    one.append(ToolMessage(call_id="a", text="one"))
    one.append(UserMessage(text="next"))
    assert b",".join(ShownMessages(one, 0, 6).encode("x", encode)) == b"go,call|one|two,next"
    assert b",".join(ShownMessages(one, 0, 4).encode("x", encode)) == before


def test_the_last_unit_can_be_asked_for_alone() -> None:
    one = Conversation()
    one.append(UserMessage(text="a"))
    assert ShownMessages(one, 0, 1).last_unit() == [UserMessage(text="a")]
    one.append(AssistantMessage(calls=(ToolCall(id="c", name="t"), ToolCall(id="d", name="t"))))
    one.append(ToolMessage(call_id="d", text="two"))
    head, first, second = ShownMessages(one, 0, 3).last_unit()
    assert (head, first.text, second.text) == (one.own[1], MISSING, "two")
