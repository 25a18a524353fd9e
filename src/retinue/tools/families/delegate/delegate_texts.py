"""The texts of the delegate family: the prompt of a sub-agent, and the reports of its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from retinue.core.answer_layout import LayoutPage, LayoutPart, Long, result_of
from retinue.core.effects import ChildOutcome
from retinue.core.values import Ending, NoticeTexts
from retinue.formats.fair_cut import clip, missing_in
from retinue.tools.families.family_states import DELEGATE

TIMED_OUT = "Sub-task timed out"
DEPTH = "Sub-agents cannot start sub-agents at this depth"
_STOPS = {
    "turn_limit": "Tool loop exceeded maximum iterations",
    "length": "The reply was truncated at its length limit",
    "budget": "The token budget of this task is spent",
    "tokens_budget": "The token budget of this task is spent",
}
WORDS = NoticeTexts(
    notice={
        "completed": "### {label} (completed)\n{text}",
        "timed_out": "### {label} (timed_out)\n" + TIMED_OUT + "\n\nText so far:\n{text}",
        "": "### {label} (failed)\nError: {error}\n\nText so far:\n{text}",
    },
    announcement={
        "completed": "'{label}' completed ({done}/{size})",
        "timed_out": "'{label}' timed_out ({done}/{size})",
        "incomplete": "'{label}' failed ({done}/{size}): stopped at a limit ({error})",
        "": "'{label}' failed ({done}/{size}): {error}",
    },
    denied="Error: the tool '{tool}' is not available for this sub-agent.",
)
GUIDE = (
    "You can give work to sub-agents with delegate_tasks.\n- Use it for requests with "
    "independent parts, or for work that would take you many steps. Do what takes a step "
    "or two yourself: each sub-agent has the cost of its own conversation.\n- Use mode "
    '"parallel" if you need the results for your answer: the call returns when all tasks '
    'have ended. Use mode "background" for long work: the call returns immediately, and you '
    "continue or end your turn.\n- A sub-agent does not see this conversation. Put what "
    "it must know into context_summary, and give it only the tools it needs.\n- Do not "
    "poll background tasks, and do not start them a second time. Their results are "
    "announced automatically.{more}"
)
MORE = (
    " Use cancel_tasks only for work you no longer need, and list_tasks when you return "
    "to a conversation and do not know what is still running."
)
MOST_NAMED = 20


def guide(has_more: bool) -> str:
    return GUIDE.format(more=MORE if has_more else "")


def not_given(names: Sequence[str], names_known: Sequence[str]) -> str:
    """What is said of a task that asked for tools that there are not; "" when it got all of
    them."""
    if not names:
        return ""
    some = ", ".join(f"'{clip(name, 100)}'" for name in names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"was not given {some}{more}: unknown tool. Available: {', '.join(names_known) or 'none'}"
    )


DELEGATE_DESCRIPTION = (
    "Give tasks to sub-agents; each works alone on one task with the tools you list for "
    'it. Mode "parallel" starts them together, waits for all, and returns their results '
    'in the order of your list. Mode "background" starts them and returns a group id '
    "immediately; the user is notified on the channel as tasks end. Sub-agents do not see this "
    "conversation. Do small tasks yourself."
)
LIST_DESCRIPTION = (
    "List the background task groups you started, including those from before this "
    "conversation was resumed, and which of their tasks are still running. Results are "
    "announced automatically, so do not use this to wait."
)
CANCEL_DESCRIPTION = (
    "Stop background tasks started by delegate_tasks: a whole group, or some of its "
    "tasks. Finished tasks are not affected. Use it only for work you no longer need, "
    "not to check progress."
)


def instructions(prompt: str, summary: str) -> str:
    """The whole system prompt of a sub-agent: no persona, no memory, no conversation of its
    parent."""
    context = summary.strip() or "None beyond the task itself."
    return (
        f"You are a sub-agent with one task.\n\n## Context\n{context}\n\n## Your "
        f"Task\n{prompt}\n\nReply with your results, briefly and without preamble."
    )


def results(outcomes: Sequence[ChildOutcome], before: str = "") -> LayoutPage:
    """What became of the tasks, in the order in which they were given."""
    ordered = sorted(outcomes, key=lambda o: o.item)
    parts = tuple(
        LayoutPart(
            f"### {o.label} ({DELEGATE[o.ending.state]})", _remarked(o), DELEGATE[o.ending.state]
        )
        for o in ordered
    )
    return LayoutPage(f"{before}## Results", parts)


def summary(group: str, outcomes: Sequence[ChildOutcome]) -> LayoutPage:
    """The last message about a group."""
    return results(outcomes, f"All {len(outcomes)} tasks of group {group} have reported.\n\n")


def _remarked(outcome: ChildOutcome) -> Long:
    output = _output(outcome.ending)
    return (
        replace(output, text=f"{output.text}\n\n(It {outcome.remark})")
        if outcome.remark
        else output
    )


def _output(ending: Ending) -> Long:
    status, result = DELEGATE[ending.state], result_of(ending)
    if status == "completed":
        return result
    head = TIMED_OUT if status == "timed_out" else f"Error: {_message(ending)}"
    if not ending.text.strip():
        return Long(head)
    text = f"{head}\n\nText so far:\n{ending.text}"
    return Long(text, result.where, note=missing_in(text)) if result.where else Long(text)


def _message(ending: Ending) -> str:
    return ending.error or _STOPS.get(ending.stop) or ending.stop.replace("_", " ")
