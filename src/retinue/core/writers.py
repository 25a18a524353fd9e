"""Children that change files in parallel. One that is alone works in its parent's directory.
Several work in parallel in copies of it, or one after the other: in copies if its parent waits for
them, so that there is a moment at which their changes can be merged, and if copies can be made
there at all.

Theory of operation. Before the step that takes actions, the performer of effects asks
`wants_copies` and makes a commit of the parent's files as they are (`ActionsReturned.snapshot`, ""
where there can be none). `placed` then decides for each child. One that edits in the directory
itself takes turns (`RunRequest.writers` of a spec is `turns`): it queues in one of the
`writer_lines`, before its first lane, until it has its turn, which it keeps to its end; then the
next one is let in. What is done with copies is in `copy_merges`."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from retinue.core.capabilities import allows, covers
from retinue.core.events import ActionEvent, Admitted
from retinue.core.shared import Shared
from retinue.core.spec import Actions, RunRequest
from retinue.core.state import Run, calls_of
from retinue.core.step_context import StepContext
from retinue.core.tree import Tree
from retinue.core.values import Permissions, ToolRisk


def changes_files(shared: Shared, agent: str, permissions: Permissions) -> bool:
    """Whether a run of this agent, or one that it may start, can change files."""
    return _holds(shared, agent, permissions, is_edit=False)


def edits_files(shared: Shared, agent: str, permissions: Permissions) -> bool:
    """The same, but for commands: without their turn these only read."""
    return _holds(shared, agent, permissions, is_edit=True)


def _holds(shared: Shared, agent: str, permissions: Permissions, *, is_edit: bool) -> bool:
    definition = shared.definitions.get(agent)
    if definition is None or permissions.mode == "plan" or permissions.write == ():
        return False
    for name in dict.fromkeys((agent, *definition.agents)):
        member = shared.definitions.get(name)
        if member is None or (
            name != agent and permissions.agents is not None and name not in permissions.agents
        ):
            continue
        for tool, guard in member.tool_risks.items():
            if allows(permissions, tool) and (_is_edit(guard) if is_edit else guard.changes_files):
                return True
    return False


def _is_edit(guard: ToolRisk) -> bool:
    return guard.changes_files and guard.risk == "write"


def wants_copies(tree: Tree, run: str, index: int, actions: Actions) -> bool:
    """Whether one of these children should work in a copy, if one can be made. `index` is the call
    that starts them."""
    parent, permissions = tree.runs.get(run), tree.permissions_of(run)
    if parent is None:
        return False
    writers = [
        request
        for request in actions.spawns
        if _may_have_copy(request)
        and changes_files(tree.shared, request.agent, _requested(permissions, request))
    ]
    place = tree.specs[run].request.cwd
    return bool(writers) and (len(writers) > 1 or not _is_alone(tree, parent, index, place))


def _requested(permissions: Permissions, request: RunRequest) -> Permissions:
    """About what a child will hold: whether it may is decided later."""
    child_permissions = request.permissions
    return replace(
        permissions,
        tools=permissions.tools if child_permissions.tools is None else child_permissions.tools,
        deny=(*permissions.deny, *child_permissions.deny),
        mode=child_permissions.mode or permissions.mode,
        write=permissions.write if child_permissions.write is None else child_permissions.write,
    )


def _may_have_copy(request: RunRequest) -> bool:
    return (
        request.writers == "worktrees"
        and not request.isolation
        and request.join in ("call", "turn")
    )


def _is_alone(tree: Tree, parent: Run, index: int, place: str) -> bool:
    """Whether nothing else of the parent can change its files meanwhile: no other call that is
    being run, and no other child."""
    calls = calls_of(parent)
    if calls is not None and (calls.tools | calls.woken | calls.parked) & ~(1 << index):
        return False
    return not tree.writer_lines.is_busy(parent.id, place)


def placed(
    ctx: StepContext, event: ActionEvent, request: RunRequest, permissions: Permissions
) -> RunRequest:
    """The request with what is decided about its directory: a copy, or its turn in the directory
    itself."""
    shared, place = ctx.shared, event.place or ctx.request.cwd
    if request.isolation:
        return request
    is_inside = not request.cwd or covers(request.cwd, place, Permissions())
    is_possible = bool(event.snapshot) and is_inside and _may_have_copy(request)
    if is_possible and changes_files(shared, request.agent, permissions):
        return replace(request, isolation="worktree", copy_of=event.snapshot)
    turn: Literal["turns", "worktrees"] = "worktrees"
    if edits_files(shared, request.agent, permissions):
        turn = "turns"
    return request if request.writers == turn else replace(request, writers=turn)


def let_next_in(ctx: StepContext) -> None:
    """The run has ended: the oldest of those who wait for their turn has it."""
    if ctx.request.writers == "turns" and (after := ctx.tree.writer_lines.leave(ctx.spec)):
        ctx.post_event(after, Admitted())
