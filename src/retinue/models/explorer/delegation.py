"""Starts sub-agents with the tools of whichever family the run has, and collects their findings:
joined results, polled results, or mail. A part that cannot be delegated is left to the lead itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from retinue.models.explorer.child_report import Findings, decode, dumps
from retinue.models.explorer.known_answers import CallAnswer, KnownAnswers, is_cut

MARK = "explorer: "
LOOKING = ("list", "search", "find", "symbols", "read", "git")
TOKENS = 4_000_000
WIDE = 60_000
"""Bytes that a sub-agent may submit where a result that is too long can be read in pages."""
ANY_SIZE = 1 << 20
WAIT_SECONDS = 600
WAVES, WAITS = 4, 6
FULL = re.compile(r"limit reached|too many active|concurrency", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AreaTask:
    """`assignment` is what a sub-agent must know, as JSON; `say` tells people what it does."""

    name: str
    say: str
    assignment: dict[str, Any]

    @property
    def task(self) -> str:
        return (
            f"{self.say}\nOnly read; submit your findings as rows of "
            f"JSON.\n{MARK}{dumps(self.assignment)}"
        )


def assignment_in(task: str) -> dict[str, Any] | None:
    """The assignment in the task of a sub-agent; None for the task of a person."""
    match = re.search(rf"^.*?{re.escape(MARK)}(\{{.*\}})\s*$", task, re.MULTILINE)
    if match is None:
        return None
    try:
        assignment = json.loads(match[1])
    except ValueError:
        return None
    return (
        assignment
        if isinstance(assignment, dict) and isinstance(assignment.get("part"), str)
        else None
    )


Answers = dict[str, Findings]
"""By the name of the part. One that is missing here was not taken by any sub-agent."""


def hand_out(answers: KnownAnswers, parts: Sequence[AreaTask]) -> Answers:
    """What sub-agents have found. While `answers.pending` (or `answers.resting`) is set, not all
    have answered."""
    if not parts:
        return {}
    for tool, dialect in _DIALECTS:
        if answers.can(tool) or answers.used(tool):
            if tool != "sessions_spawn":  # its results come by mail, which is short
                parts = [replace(p, assignment={**p.assignment, "room": WIDE}) for p in parts]
            return dialect(answers, parts)
    return {}


def _json(answer: CallAnswer | None) -> Any:
    if answer is None:
        return None
    try:
        return json.loads(answer.text)
    except ValueError:
        return None


def _sheet(answers: KnownAnswers, answer: CallAnswer | None) -> Any:
    """An answer in JSON. Where there was no room for all rows, it says where the whole is."""
    data = _json(answer)
    left_out = data.get("cut") if isinstance(data, dict) else None
    where = re.fullmatch(r"artifact (\w+)", _text(left_out, "whole"))
    if where is None or not answers.can("artifact"):
        return data
    return _json(answers.pages(where[1], ANY_SIZE)) or data


def _whole(answers: KnownAnswers, text: str) -> str:
    """One result of several: when it is cut, the whole of it is kept by itself."""
    answer = answers.whole(CallAnswer(text, cut=is_cut(text)))
    return text if answer is None else answer.text


def _failed(name: str, why: str) -> Findings:
    return Findings(
        name,
        whole=False,
        why=" ".join(why.split())[:200] or "it ended without a result",
        by_child=True,
    )


def _lent(answers: KnownAnswers) -> list[str]:
    return [t for t in LOOKING if t in answers.declared]


# the dialects


def _fanout(answers: KnownAnswers, parts: Sequence[AreaTask]) -> Answers:
    out: Answers = {}
    for chunk in _chunks(answers, "spawn_agents", parts):
        answer = answers.ask("spawn_agents", tasks=[{"task": p.task} for p in chunk])
        if answer is None or answer.error:
            continue
        data = _sheet(answers, answer)
        results = data.get("sub_agent_results") if isinstance(data, dict) else None
        by_task = {p.task: p for p in chunk}
        for item in results if isinstance(results, list) else ():
            part = by_task.pop(_text(item, "task"), None)
            outcome = item.get("outcome") if part else None
            if part is None or not isinstance(outcome, dict):
                continue
            good, bad = outcome.get("success"), outcome.get("failure")
            if isinstance(good, dict):
                out[part.name] = decode(part.name, _whole(answers, _text(good, "result")))
            else:
                out[part.name] = _partial(part.name, _text(bad, "error"))
        for part in by_task.values():
            out[part.name] = _failed(part.name, "its result could not be read")
    return out


def _delegate(answers: KnownAnswers, parts: Sequence[AreaTask]) -> Answers:
    out: Answers = {}
    for chunk in _chunks(answers, "delegate_tasks", parts):
        tasks = [
            {"task_id": p.name[:190], "prompt": p.task, "tools": _lent(answers)} for p in chunk
        ]
        answer = answers.ask("delegate_tasks", mode="parallel", tasks=tasks)
        if answer is None or answer.error:
            continue
        rest = answer.text
        for part, after in zip(chunk, [*chunk[1:], None], strict=True):
            head = re.search(rf"^### {re.escape(part.name[:190])} \((\w+)\)\n", rest, re.MULTILINE)
            if head is None:
                out[part.name] = _failed(part.name, "its result could not be read")
                continue
            rest = rest[head.end() :]
            end = (
                re.search(rf"\n\n### {re.escape(after.name[:190])} \(\w+\)\n", rest)
                if after
                else None
            )
            body = _whole(answers, rest[: end.start()] if end else rest)
            out[part.name] = (
                decode(part.name, body) if head[1] == "completed" else _partial(part.name, body)
            )
    return out


def _batch(answers: KnownAnswers, parts: Sequence[AreaTask]) -> Answers:
    out: Answers = {}
    tasks = [{"label": p.name, "task_prompt": p.task} for p in parts]
    answer = answers.ask("parallel_subagent", tasks=tasks)
    if answer is None or answer.error:
        return out
    data = _sheet(answers, answer)
    results = data.get("results") if isinstance(data, dict) else None
    for n, part in enumerate(parts):
        item = results[n] if isinstance(results, list) and n < len(results) else None
        out[part.name] = _summary(answers, part.name, item)
    return out


def _single(answers: KnownAnswers, parts: Sequence[AreaTask]) -> Answers:
    out: Answers = {}
    for part in parts:
        answer = answers.ask("subagent", label=part.name, task_prompt=part.task)
        if answer is not None and not answer.error:
            out[part.name] = _summary(answers, part.name, _json(answer))
    return out


def _summary(answers: KnownAnswers, name: str, item: Any) -> Findings:
    """A result object of the family `subagent`: its output may be cut, and then the whole is kept
    elsewhere."""
    output = _text(item, "output")
    text = _whole(answers, output)
    if isinstance(item, dict) and item.get("success") is True:
        return decode(name, text)
    return _partial(name, f"{_text(item, 'error')}\n{text}")


def _agents(answers: KnownAnswers, parts: Sequence[AreaTask]) -> Answers:
    """Start as many as may run in parallel, wait, and start the others."""
    out: Answers = {}
    tries = dict.fromkeys((p.name for p in parts), 0)
    todo = list(parts)
    for _ in range(WAVES):
        ids: dict[str, str] = {}
        later = []
        for part in todo:
            answer = _spawn_agent(answers, part, tries)
            id = _text(_json(answer), "agent_id")
            if id:
                ids[part.name] = id
            elif answer is not None and FULL.search(answer.text):
                later.append(part)
        if answers.pending:
            return {}
        if ids and not _all_ended(answers, ids, out):
            return out
        todo = later
        if not todo or not ids:
            break
    return out


def _spawn_agent(answers: KnownAnswers, part: AreaTask, tries: dict[str, int]) -> CallAnswer | None:
    """The next try for a part: with tokens enough, or else with what it is given."""
    ladder: list[tuple[str, dict[str, Any]]] = [
        ("agent_spawn", {"prompt": part.task, "budget": {"max_tokens": TOKENS}}),
        ("agent_spawn", {"prompt": part.task}),
    ]
    answer = None
    n = tries[part.name]
    for name, args in ladder:
        answer = answers.ask(name, n, **args)
        if answer is None or not answer.error:
            break
        if FULL.search(answer.text):
            tries[part.name] = n + 1
            break
        n = 0
    return answer


def _all_ended(answers: KnownAnswers, ids: dict[str, str], out: Answers) -> bool:
    """Wait for sub-agents by their ids; whether all have ended (or will not be waited for any
    longer)."""
    states: dict[str, dict[str, Any]] = {}
    if answers.can("agent_wait") or not answers.can("agent_status"):
        for n in range(WAITS):
            answer = answers.ask(
                "agent_wait", n, agent_ids=list(ids.values()), timeout_seconds=WAIT_SECONDS
            )
            if answer is None:
                break
            data = _sheet(answers, answer)
            agents = data.get("agents") if isinstance(data, dict) else None
            for item in agents if isinstance(agents, list) else ():
                states[_text(item, "agent_id")] = item
            if answer.cut or (isinstance(data, dict) and data.get("status") == "complete"):
                break
    elif (
        not all(id in answers.news for id in ids.values())
        and not answers.closing
        and len(answers.texts) < WAITS
    ):
        answers.resting = f"Waiting for {len(ids)} sub-agents."
        return False
    if answers.pending:
        return False
    for name, id in ids.items():
        item = states.get(id)
        if item is None or item.get("is_final") is not True:
            item = _json(answers.ask("agent_status", id_nth(answers, id), agent_id=id))
        out[name] = _ended(answers, name, item if isinstance(item, dict) else {})
    return not answers.pending


def id_nth(answers: KnownAnswers, id: str) -> int:
    """A status is asked for once."""
    return max(0, len(answers.answers("agent_status", {"agent_id": id})) - 1)


def _ended(answers: KnownAnswers, name: str, item: dict[str, Any]) -> Findings:
    if item.get("state") == "completed":
        return decode(name, _whole(answers, _text(item, "output")))
    if item.get("is_final") is not True:
        return _failed(name, "it did not end in time")
    return _partial(name, _text(item, "error") or _text(item, "state"))


def _sessions(answers: KnownAnswers, parts: Sequence[AreaTask]) -> Answers:
    """Each call waits for its reply, or is accepted and announced later; then yielding brings the
    news."""
    out: Answers = {}
    tries = dict.fromkeys((p.name for p in parts), 0)
    todo, yields = list(parts), 0
    for _ in range(WAVES):
        accepted: dict[str, str] = {}
        later = []
        for part in todo:
            args: dict[str, Any] = {
                "task": part.task,
                "label": part.name,
                "timeoutSeconds": WAIT_SECONDS,
            }
            answer = answers.ask("sessions_spawn", tries[part.name], **args)
            data = _json(answer)
            state = _text(data, "status")
            if answer is not None and answer.error:
                if FULL.search(answer.text):
                    tries[part.name] += 1
                    later.append(part)
            elif state == "ok":
                out[part.name] = decode(part.name, _whole(answers, _text(data, "reply")))
            elif state in ("accepted", "timeout"):
                accepted[part.name] = _text(data, "runId")
            elif answer is not None:
                out[part.name] = _partial(
                    part.name, f"{_text(data, 'error')}\n{_text(data, 'partial')}"
                )
        if answers.pending:
            return {}
        while any(id not in answers.news for id in accepted.values()) and yields < WAITS + len(
            parts
        ):
            if answers.ask("sessions_yield", yields) is None:
                break
            yields += 1
        if answers.pending:
            return out
        for name, id in accepted.items():
            out[name] = _announced(answers, name, answers.news.get(id, ""))
        todo = later
        if not todo or not accepted:
            break
    return out


def _announced(answers: KnownAnswers, name: str, news: str) -> Findings:
    state = re.search(r"^status: (\w+)$", news, re.MULTILINE)
    if state is None:
        return _failed(name, "it did not report in time")
    _, _, result = news.partition("\nresult:\n")
    return (
        decode(name, _whole(answers, result))
        if state[1] == "ok"
        else _partial(name, f"{state[1]}\n{result}")
    )


def _partial(name: str, text: str) -> Findings:
    """One that failed may have said something before."""
    findings = decode(name, text)
    findings.whole = False
    if not findings.rows:
        why = re.split(r"\n|Text so far", text.strip(), maxsplit=1)[0]
        return _failed(name, why)
    return findings


def _text(item: Any, key: str) -> str:
    value = item.get(key) if isinstance(item, dict) else None
    return value if isinstance(value, str) else ""


def _chunks(
    answers: KnownAnswers, tool: str, parts: Sequence[AreaTask]
) -> list[Sequence[AreaTask]]:
    """As many in one call as the tool's schema allows."""
    schema = answers.declared.get(tool)
    tasks = schema.parameters.get("properties", {}).get("tasks", {}) if schema else {}
    most = tasks.get("maxItems") if isinstance(tasks, dict) else None
    size = most if isinstance(most, int) and most > 0 else 10
    return [parts[i : i + size] for i in range(0, len(parts), size)]


Dialect = Callable[[KnownAnswers, Sequence[AreaTask]], Answers]
_DIALECTS: tuple[tuple[str, Dialect], ...] = (
    ("spawn_agents", _fanout),
    ("delegate_tasks", _delegate),
    ("parallel_subagent", _batch),
    ("agent_spawn", _agents),
    ("sessions_spawn", _sessions),
    ("subagent", _single),
)
