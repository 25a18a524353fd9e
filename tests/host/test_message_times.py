"""When messages were recorded, read from the steps of their run."""

from __future__ import annotations

from retinue.core.events import Admitted, LogEntry, MailReceived, Replied, TextReturned
from retinue.core.messages import (
    AssistantMessage,
    Message,
    ModelReply,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.core.values import Mail
from retinue.host.message_times import message_times

CALLS = (ToolCall(id="a", name="read"), ToolCall(id="b", name="read"))
TASK, MAIL = UserMessage(text="task"), UserMessage(text="news", kind="news")
CALLING, DONE = AssistantMessage(calls=CALLS), AssistantMessage(text="Done.")


def result(id: str) -> ToolMessage:
    return ToolMessage(call_id=id, text="text")


def returned(id: str, turn: int = 1) -> TextReturned:
    return TextReturned(turn=turn, index=0, call_id=id, name="read", text="text")


def replied(message: AssistantMessage) -> Replied:
    return Replied(attempt=1, reply=ModelReply(message=message))


def log(*steps: tuple[int, object], stale: str = "") -> list[LogEntry]:
    return [LogEntry(run="r", at=at, event=event, stale=stale) for at, event in steps]  # type: ignore[arg-type]


def test_a_reply_and_each_result_have_the_time_of_their_step() -> None:
    messages: list[Message] = [TASK, CALLING, result("b"), result("a"), DONE]
    steps = log((10, Admitted()), (20, replied(CALLING)), (30, returned("b")), (90, returned("a")))
    assert message_times(messages[:4], steps) == [10, 20, 30, 90]
    assert message_times(messages, [*steps, *log((99, replied(DONE)))]) == [10, 20, 30, 90, 99]


def test_an_id_that_a_provider_uses_again_is_dated_by_its_own_turn() -> None:
    messages: list[Message] = [TASK, CALLING, result("a"), CALLING, result("a")]
    steps = log(
        *((10, Admitted()), (20, replied(CALLING)), (30, returned("a"))),
        *((40, replied(CALLING)), (50, returned("a", 2))),
    )
    assert message_times(messages, steps) == [10, 20, 30, 40, 50]


def test_other_messages_count_as_of_the_last_step_before_the_next_reply() -> None:
    mail = Mail(seq=1, sender="x", text="news", kind="news")
    messages: list[Message] = [TASK, DONE, MAIL, DONE]
    steps = log(
        *((10, Admitted()), (20, replied(DONE)), (70, MailReceived(mail=mail))),
        *((80, Admitted()), (90, replied(DONE))),
    )
    assert message_times(messages, steps) == [10, 20, 80, 90]


def test_a_refused_step_dates_nothing_and_a_missing_log_is_no_error() -> None:
    steps = [*log((5, replied(DONE)), stale="late"), *log((10, Admitted()), (20, replied(DONE)))]
    assert message_times([TASK, DONE], steps) == [10, 20]
    assert message_times([TASK, DONE, MAIL], []) == [0, 0, 0]
