"""Questions and permission requests of runs as requests to the editor: choices for a permission, a
form for text if the editor supports forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acp import schema

from retinue.acp import call_updates
from retinue.core.messages import ToolCall
from retinue.host.requests import AnswerRequest
from retinue.view.call_wants import question_wants

ALLOW, ALWAYS, REJECT = "allow", "always", "reject"
NO_ANSWER = "The user did not answer."


def options(question: Mapping[str, Any]) -> list[schema.PermissionOption]:
    """The buttons for a question; none when it wants words."""
    if question["kind"] == "permission":
        return [
            _option(ALLOW, "Allow", "allow_once"),
            _option(ALWAYS, "Allow this call from now on", "allow_always"),
            _option(REJECT, "Deny", "reject_once"),
        ]
    if question["kind"] == "budget":
        more = str(question.get("shown", "")).rpartition("A yes adds ")[2].strip().rstrip(".")
        return [
            _option(ALLOW, f"Add {more}" if more else "Raise the limit", "allow_once"),
            _option(REJECT, "Finish with what there is", "reject_once"),
        ]
    if not (texts := choices(question)):
        return []
    return [
        *(_option(f"choice/{n}", text, "allow_once") for n, text in enumerate(texts)),
        _option(REJECT, "Do not answer", "reject_once"),
    ]


def choices(question: Mapping[str, Any]) -> list[str]:
    """The answers that a question suggests; the tool `ask` has them in its arguments."""
    call = _call(question)
    texts = question.get("choices") or (call.arguments.get("options") if call.name == "ask" else ())
    return [str(text) for text in texts or ()]


def _call(question: Mapping[str, Any]) -> ToolCall:
    fields = question.get("call") or {}
    return ToolCall(id="", name=fields.get("name", ""), arguments_json=fields.get("args", "{}"))


def _option(id: str, name: str, kind: schema.PermissionOptionKind) -> schema.PermissionOption:
    return schema.PermissionOption(option_id=id, name=name, kind=kind)


def shown_call(
    question: Mapping[str, Any], id: str, cwd: str, *, is_own: bool
) -> schema.ToolCallUpdate:
    """What is to be decided: the call with its diff, or the question. A sub-agent's is shown with
    its name, unless it `is_own`."""
    call = _call(question)
    is_call = question["kind"] == "permission"
    diff = call_updates.changes(call, cwd) if is_call else []
    text = question.get("shown") or question["text"]
    name = "" if is_own else f"{question['label']}: "
    why = f"\n\n{question['why']}" if question.get("why") else ""
    content: list[Any] = [*diff, call_updates.text_content(f"{text}{why}")]
    return schema.ToolCallUpdate(
        tool_call_id=id,
        title=name + question_wants(question),
        kind=call_updates.kind(call) if is_call else "other",
        status="pending",
        content=content,
        locations=call_updates.locations(call, cwd) if is_call else None,
        raw_input=call_updates.raw_input(call) if is_call else None,
    )


def decision(question: Mapping[str, Any], option: str, by: str) -> AnswerRequest | None:
    """The request to the host for the button that was pressed. None when a question that takes
    nothing but its choices is not answered."""
    run, id = question["run"], question["id"]
    if question["kind"] != "question":
        is_yes = option in (ALLOW, ALWAYS)
        return AnswerRequest(run=run, question=id, allow=is_yes, always=option == ALWAYS, by=by)
    head, _, number = option.partition("/")
    texts = choices(question)
    is_choice = head == "choice" and number.isdigit() and int(number) < len(texts)
    if not is_choice and question.get("choices"):
        return None
    return words(question, texts[int(number)] if is_choice else NO_ANSWER, by)


def words(question: Mapping[str, Any], text: str, by: str) -> AnswerRequest:
    return AnswerRequest(run=question["run"], question=question["id"], text=text, by=by)


def form(session: str) -> schema.ElicitationFormSessionMode:
    """A form with one field for words."""
    answer = schema.ElicitationStringPropertySchema(type="string", title="Answer")
    return schema.ElicitationFormSessionMode(
        session_id=session,
        requested_schema=schema.ElicitationSchema(
            type="object", properties={"answer": answer}, required=["answer"]
        ),
    )
