"""`delegate_tasks`: gives tasks to sub-agents, in parallel or in the background."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.core.answer_layout import Laid
from retinue.core.capabilities import allows
from retinue.core.effects import ChildOutcome
from retinue.core.ids import digest
from retinue.core.spec import Actions, Lane, RunRequest
from retinue.core.state import RunRecord, ending_of
from retinue.core.values import Budget, Permissions, SpawnLimits, ToolSchema
from retinue.tools.base import Context, Returned
from retinue.tools.families.base import (
    CallComplaint,
    FamilyTool,
    helper_name,
    reader_of,
    writers_note,
)
from retinue.tools.families.delegate.background_usage import (
    HOUR_MS,
    NAME,
    Tally,
    claim,
    is_task,
    tally,
)
from retinue.tools.families.delegate.cancel_tasks import CANCEL, DELEGATE, LIST
from retinue.tools.families.delegate.delegate_settings import DelegateSettings
from retinue.tools.families.delegate.delegate_texts import (
    DELEGATE_DESCRIPTION,
    DEPTH,
    WORDS,
    instructions,
    not_given,
    results,
    summary,
)
from retinue.tools.families.delegate.task_arguments import DelegateTask, read_call, task_parameters

MIN_TOKENS = 2_000
"""With less than this a task could not say anything useful: it is not started."""


class DelegateTasks(FamilyTool):
    """The tool that starts sub-agents."""

    notices = WORDS
    dialect = starts = NAME

    def __init__(self, settings: DelegateSettings) -> None:
        self.settings = self._settings = settings
        self.schema = ToolSchema(
            name=DELEGATE,
            description=f"{DELEGATE_DESCRIPTION} {writers_note(settings.writers)}",
            parameters=task_parameters(settings),
        )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned:
        helper = helper_name(context.spec.request.agent, NAME)
        if context.reader is None or not context.reader.defaults(helper):
            raise CallComplaint("Orchestrator registry not initialized")
        mode, tasks = read_call(
            args, self._settings.max_subtasks_per_request, self._settings.task_fields
        )
        access = [self._access(context, helper, task) for task in tasks]
        _check_models(context, tasks)
        group, tokens = await self._reserve(context, helper, mode, len(tasks))
        shared = self._shared(context, group, tokens, len(tasks))
        spawns = tuple(
            _child_request(context, helper, task, *limits, shared)
            for task, limits in zip(tasks, access, strict=True)
        )
        return self._actions(context, spawns, group)

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> Laid:
        return results(outcomes)

    def summarize(self, group: str, outcomes: Sequence[ChildOutcome]) -> Laid:
        return summary(group, outcomes)

    def _actions(self, context: Context, spawns: tuple[RunRequest, ...], group: str) -> Actions:
        n, s = len(spawns), self._settings
        refusals = {
            "depth": DEPTH,
            "per_call": f"Too many sub-tasks: {n} (max {s.max_subtasks_per_request})",
            "groups": _too_many_groups(s.max_background_groups, s),
        }
        if not group:
            # What a sub-agent hands on is part of a task that the channel knows of.
            posts = () if is_task(context.spec) else (f"Working on {n} tasks...",)
            return Actions(spawns=spawns, posts=posts, refusals=refusals)
        started = f"Started task group {group} with {n} tasks."
        remark = (
            "The user will be notified on the original channel as tasks complete."
            if context.spec.origin.channel
            else "No channel is set, so the user is not notified. You will get each result as "
            "a message while you work, or when this conversation continues."
        )
        remark = " ".join([remark, *(f"Task '{o.label}' {o.remark}" for o in spawns if o.remark)])
        names = ", ".join(f"'{o.label}'" for o in spawns)
        posts = (f"{started[:-1]}: {names}",)
        return Actions(spawns=spawns, posts=posts, answer=f"{started} {remark}", refusals=refusals)

    # what each task gets

    def _shared(self, context: Context, group: str, tokens: int | None, n: int) -> dict[str, Any]:
        """The fields that all requests of a call share."""
        s = self._settings
        seconds = s.background_timeout_secs if group else s.parallel_timeout_secs
        fields: dict[str, Any] = {
            "cwd": context.cwd,
            "max_turns": s.turns_per_task,
            "timeout_ms": None if seconds is None else max(1, round(1000 * seconds)),
            "silence_ms": None if s.stall_secs is None else max(1, round(1000 * s.stall_secs)),
            "timeout_from": "start",
            "lanes": (
                Lane(
                    name=f"{NAME}/{context.child_id()}",
                    size=s.max_concurrent_subtasks,
                    scope="tree",
                ),
            ),
            "limits": SpawnLimits(
                per_call=s.max_subtasks_per_request,
                groups=s.max_background_groups if group else None,
            ),
        }
        if tokens is not None:
            fields["budget"] = Budget(tokens=tokens)
        if not group:
            return {**fields, "join": "call", "format_results": True, "result_order": "input"}
        # A sub-agent is not done before those whom it has started: what they spend is part of what
        # it was granted.
        on_parent_end = "wait" if is_task(context.spec) else "keep"
        news = not context.spec.origin.channel
        own = {"group": group, "group_kind": NAME, "group_size": n}
        return {
            **fields,
            **own,
            "join": "none",
            "on_parent_end": on_parent_end,
            "announce": True,
            "tell_parent": news,
        }

    def _access(self, context: Context, helper: str, task: DelegateTask) -> tuple[Permissions, str]:
        """Only the tools that are listed; those of this family only while there are levels left for
        them. Missing ones are omitted, and the result says so."""
        permissions = context.row.permissions or context.spec.permissions
        depth = (
            self._settings.levels
            if permissions.depth is None
            else min(permissions.depth, self._settings.levels)
        )
        withheld = (DELEGATE, CANCEL, LIST) if depth < 2 else ()
        tool_list = [
            t
            for t in reader_of(context).tools(helper)
            if allows(permissions, t) and t not in withheld
        ]
        names = sorted({t for t in task.tools if t not in withheld})
        tools = tuple(t for t in names if t in tool_list)
        remark = not_given([t for t in names if t not in tool_list], tool_list)
        return Permissions(tools=tools, depth=max(0, depth - 1)), remark

    # what a call may take

    async def _reserve(
        self, context: Context, helper: str, mode: str, n: int
    ) -> tuple[str, int | None]:
        """The id of a background group and the tokens of each task, claimed together."""
        s, background = self._settings, mode == "background"
        budgeted = s.hourly_token_budget is not None and not is_task(context.spec)
        if not background and not budgeted:
            return "", None
        children = await context.children()
        tally_now = await tally(
            context, context.called_at - s.longest_ms - (HOUR_MS if budgeted else 0)
        )
        group = ""
        if background:
            running = tally_now.n_groups(helper)
            if running >= s.max_background_groups:
                raise CallComplaint(_too_many_groups(running, s))
            group = _group_id(context, children, tally_now)
        tokens = self._grant(context, children, tally_now, n) if budgeted else None
        claim(context, helper, group, (tokens or 0) * n)
        return group, tokens

    def _grant(self, context: Context, children: Sequence[RunRecord], usage: Tally, n: int) -> int:
        """What one task may use: what it would get if the call were as large as it may be, so that
        others get theirs. Never more than the calling run's own budget can give."""
        s = self._settings
        most = s.hourly_token_budget or 0
        rest = max(0, most - usage.n_tokens())
        each = max(MIN_TOKENS, rest // s.max_subtasks_per_request)
        if each * n > rest:
            raise CallComplaint(
                f"Hourly token budget exhausted: {rest} of {most} tokens left, too few "
                f"for {n} tasks. Do the work yourself, start fewer tasks, or try again "
                "later."
            )
        own = _own_rest(context, children)
        if own is not None and (each := min(each, own // (n + 1))) < MIN_TOKENS:
            raise CallComplaint(
                f"Your own token budget has {own} tokens left, too few for {n} tasks. Do the work "
                "yourself."
            )
        return each


def _child_request(
    context: Context,
    helper: str,
    task: DelegateTask,
    access: Permissions,
    remark: str,
    shared: dict[str, Any],
) -> RunRequest:
    return context.request(
        helper,
        task.prompt,
        label=task.task_id,
        instructions=instructions(task.prompt, task.context_summary),
        permissions=access,
        model=task.model,
        remark=remark,
        **shared,
    )


def _check_models(context: Context, tasks: Sequence[DelegateTask]) -> None:
    permissions = context.row.permissions or context.spec.permissions
    models = [
        m
        for m in reader_of(context).models()
        if permissions.models is None or m in permissions.models
    ]
    for i, task in enumerate(tasks):
        if task.model and task.model not in models:
            raise CallComplaint(
                f"Task {i}: unknown model '{task.model}'. Available models: {', '.join(models)}"
            )


def _own_rest(context: Context, children: Sequence[RunRecord]) -> int | None:
    """What the calling run's own budget has left, or None if it has none."""
    limit = context.spec.request.budget.tokens
    if limit is None:
        return None
    for spec, run in children:
        granted = spec.request.granted.tokens
        limit -= run.usage.tokens if ending_of(run) is not None or granted is None else granted
    return max(0, limit - context.row.usage.tokens)


def _group_id(context: Context, children: Sequence[RunRecord], usage: Tally) -> str:
    """The same for the same call, and no other group of this run has it."""
    ids = {spec.request.group for spec, _ in (*children, *usage.rows)} | {
        c.group for c in usage.claims
    }
    n = 0
    while (id := f"bg-{digest(context.child_id(), n)[:6]}") in ids:
        n += 1
    return id


def _too_many_groups(running: int, s: DelegateSettings) -> str:
    return f"Too many background task groups running: {running} (max {s.max_background_groups})"
