"""The words of the delegate family: what a sub-agent is told, and how others are told of its
end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from retinue.core.answer_layout import LayoutPage, LayoutPart, Long, result_of
from retinue.core.effects import ChildOutcome
from retinue.core.values import Ending, Words
from retinue.formats.fair_cut import clip, missing_in
from retinue.tools.families.family_states import DELEGATE

TIMED_OUT = "Sub-task timed out"
DEPTH = "Sub-agents cannot start sub-agents at this depth"
_STOPS = {
    "turn_limit": "Tool loop exceeded maximum iterations",
    "length": "The reply was cut off at its length limit",
    "budget": "The token budget of this task is spent",
    "tokens_budget": "The token budget of this task is spent",
}
WORDS = Words(
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
GUIDE = """You can hand work to sub-agents with delegate_tasks.
- Delegate when a request has parts that do not depend on each other, or work that would take you \
many steps. What you can do in a step or two, do yourself: each sub-agent costs a conversation of \
its own.
- Use mode "parallel" when you need the results for your answer: the call returns when all tasks \
have ended. Use mode "background" for long work: the call returns at once, and you go on or end \
your turn.
- A sub-agent sees nothing of this conversation. Put what it must know into context_summary, and \
give it the tools that it needs and no others.
- Do not poll: never ask again and again how background tasks are doing, and never start them a \
second time. Their ends are announced without your help.{more}"""
MORE = """ Use cancel_tasks only for work that is not wanted any more, and list_tasks when you \
come back to a conversation and do not know what is still at work."""
MOST_NAMED = 20


def guide(has_more: bool) -> str:
    return GUIDE.format(more=MORE if has_more else "")


def not_given(names: Sequence[str], known: Sequence[str]) -> str:
    """What is said of a task that asked for tools that there are not; "" when it got all of
    them."""
    if not names:
        return ""
    some = ", ".join(f"'{clip(name, 100)}'" for name in names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"was not given {some}{more}: there is no such tool here. Available: "
        f"{', '.join(known) or 'none'}"
    )


DELEGATE_DESCRIPTION = """Hand tasks to sub-agents, each of which works alone on one task with \
the tools you list for it. Mode "parallel" starts them together, waits for all, and returns \
their results in the order of your list. Mode "background" starts them and returns a group id \
at once; the user is told on the channel as tasks end. Sub-agents cannot see this conversation."""
LIST_DESCRIPTION = """Which task groups you have started in the background, also before this \
conversation was taken up again, and which of their tasks are still running. Ends are announced \
by themselves: this is no way to wait for them."""
CANCEL_DESCRIPTION = """Stop tasks that delegate_tasks started in the background: a whole \
group, or some of its tasks. Tasks that have ended already stay as they are. Use it when the \
work is not wanted any more, not to find out how far it is."""


def instructions(prompt: str, summary: str) -> str:
    """The whole system prompt of a sub-agent: no persona, no memory, no conversation of its
    parent."""
    context = summary.strip() or "Nothing beyond the task itself."
    return (
        "You are a sub-agent with one task to carry out.\n\n"
        f"## Context\n{context}\n\n"
        f"## Your Task\n{prompt}\n\n"
        "Reply with what you found or made, without preamble and in few words."
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
    said = _output(outcome.ending)
    return replace(said, text=f"{said.text}\n\n(It {outcome.remark})") if outcome.remark else said


def _output(ending: Ending) -> Long:
    status, said = DELEGATE[ending.state], result_of(ending)
    if status == "completed":
        return said
    head = TIMED_OUT if status == "timed_out" else f"Error: {_message(ending)}"
    if not ending.text.strip():
        return Long(head)
    text = f"{head}\n\nText so far:\n{ending.text}"
    return Long(text, said.where, note=missing_in(text)) if said.where else Long(text)


def _message(ending: Ending) -> str:
    return ending.error or _STOPS.get(ending.stop) or ending.stop.replace("_", " ")
