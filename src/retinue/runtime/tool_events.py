"""Turns the return value of a tool into its event."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, assert_never

from msgspec.structs import replace

from retinue.core.effects import CallTool
from retinue.core.events import ActionsReturned, Asked, RunEvent, Submitted, TextReturned
from retinue.core.ids import moment
from retinue.core.image_checks import MOST_SHOWN, taken_in
from retinue.core.messages import Image
from retinue.core.spec import Actions, RunRequest, RunSpec
from retinue.core.values import BranchWork, checked
from retinue.core.writers import wants_copies
from retinue.errors import RetinueError, ToolError
from retinue.formats.fair_cut import clip
from retinue.formats.safe_text import clean
from retinue.runtime.conversations import Conversations
from retinue.runtime.long_texts import Texts
from retinue.runtime.outbox import Outbox
from retinue.runtime.tool_runner import ToolRunner
from retinue.sandbox.open_directories import real_paths
from retinue.tools.base import Ask, Returned, Submission, ToolResult

if TYPE_CHECKING:
    from retinue.runtime.engine import Engine

log = logging.getLogger("retinue.tools")


class ToolEvents:
    """Texts that are too long are stored as artifacts, and links in paths are resolved, before the
    core sees either."""

    def __init__(
        self,
        engine: Engine,
        tools: ToolRunner,
        texts: Texts,
        outbox: Outbox,
        conversations: Conversations,
        home: str,
    ) -> None:
        self._engine, self._tools, self._home = engine, tools, home
        self._texts, self._outbox, self._conversations = texts, outbox, conversations
        self._shown: dict[str, tuple[int, int]] = {}
        """Of runs that were shown pictures: in which turn, and bytes of them then."""

    async def of(self, effect: CallTool, returned: Returned) -> RunEvent:
        where: Any = {
            "turn": effect.turn,
            "index": effect.index,
            "call_id": effect.call.id,
            "name": effect.call.name,
        }
        match returned:
            case ToolResult(text=text, error=error, images=images):
                if not is_plain(returned):
                    text, images = await self._pictures(effect, checked(returned))
                text, spilled = clean(text), None
                if not self._texts.fits(text):
                    text = self._texts.whole(text)
                    spilled = await self._texts.spill(text)
                    text = text if spilled is None else clip(text, self._texts.most, spilled[0])
                return TextReturned(**where, text=text, error=error, images=images, spilled=spilled)
            case Actions():
                returned = await self._startable(effect.run, returned)
                for request in returned.spawns:
                    self._outbox.check(request.origin)
                actions, place = await self._placed(
                    effect.run, await self._texts.letters(checked(returned))
                )
                snapshot = await self._snapshot(effect, actions, place)
                asked_at = moment(effect.at, effect.turn, effect.index)
                return ActionsReturned(
                    **where, actions=actions, asked_at=asked_at, place=place, snapshot=snapshot
                )
            case Submission():
                answer, spec = checked(returned), self._engine.trees.spec(effect.run)
                work = await self.work(spec) if spec is not None else None
                keep = None if spec is None else self._texts.longest(spec)
                spilled = await self._texts.spill(answer.text, keep)
                return Submitted(
                    **where,
                    text=answer.text,
                    ok=answer.ok,
                    data=answer.data,
                    spilled=spilled,
                    work=work,
                )
            case Ask():
                question = checked(returned)
                again = effect.call.arguments_json if question.rerun else None
                return Asked(
                    **where, question=question.question, choices=question.choices, again=again
                )
            case _:
                assert_never(returned)

    async def _startable(self, run: str, actions: Actions) -> Actions:
        """The actions with what hooks have made of the children that they ask for."""
        hooks, spec = self._engine.performer.hooks, self._engine.trees.spec(run)
        if hooks is None or spec is None:
            return actions
        return await hooks.before_spawns(spec, actions)

    async def _pictures(
        self, effect: CallTool, answer: ToolResult
    ) -> tuple[str, tuple[Image, ...]]:
        """The calls of one turn come back one by one, and are in the conversation some time
        later."""
        run = self._engine.trees.run(effect.run)
        spec = self._engine.trees.spec(effect.run)
        if run is None or spec is None or not answer.images:
            return taken_in(clean(answer.text), answer.images)
        conversation = await self._conversations.of(spec, run.length)
        if self._shown.get(effect.run, (-1, 0))[0] != effect.turn:
            self._shown[effect.run] = (effect.turn, conversation.picture_bytes(run.start))
        n_bytes = self._shown[effect.run][1]
        text, images = taken_in(clean(answer.text), answer.images, MOST_SHOWN - n_bytes)
        n_bytes += sum(len(image.data) for image in images)
        self._shown[effect.run] = (effect.turn, n_bytes)
        return text, images

    def over(self, run: str) -> None:
        self._shown.pop(run, None)

    async def _placed(self, run: str, actions: Actions) -> tuple[Actions, str]:
        """The directories of children and of their parent are given without links, so that the core
        can compare them."""
        spec = self._engine.trees.spec(run)
        place = (
            await self._tools.place(spec, self._home)
            if spec is not None and spec.request.isolation
            else ""
        )
        root = place or (spec.request.cwd if spec is not None else "") or self._home
        if not root or not any(
            (o.cwd and o.cwd != root) or o.permissions.read or o.permissions.write
            for o in actions.spawns
        ):
            return actions, place
        return replace(
            actions, spawns=tuple(_without_links(o, root) for o in actions.spawns)
        ), place

    async def _snapshot(self, effect: CallTool, actions: Actions, place: str) -> str:
        """A commit of the calling run's files, if children are to have copies of them; "" where
        there can be none."""
        tree, spec = self._engine.trees.of(effect.run), self._engine.trees.spec(effect.run)
        if tree is None or spec is None:
            return ""
        if not wants_copies(tree, effect.run, effect.index, actions):
            return ""
        return await self._tools.snapshot(place or spec.request.cwd or self._home)

    async def work(self, spec: RunSpec) -> BranchWork | None:
        """What an isolated run has done until now; its diff is stored before the run sees it."""
        if not spec.request.isolation:
            return None
        try:
            diff_of_run = await self._tools.work(spec)
        except RetinueError as error:
            log.warning("cannot read the changes of %s: %s", spec.id, error)
            return None
        if diff_of_run is None:
            return None
        text = self._engine.redactor.clean_bytes(diff_of_run.diff)
        diff = await self._engine.commits.with_space(lambda: self._engine.store.put_artifact(text))
        fields = {
            f: getattr(diff_of_run, f)
            for f in ("branch", "base", "commit", "files", "added", "removed")
        }
        return BranchWork(**fields, diff=diff.sha256)

    def failure(self, effect: CallTool, error: BaseException) -> ToolResult:
        """What the model reads of an exception. One that was not meant for it is logged."""
        if isinstance(error, ToolError):
            words = str(error)
        else:
            log.warning("tool %s of run %s failed", effect.call.name, effect.run, exc_info=error)
            words = f"The tool failed: {type(error).__name__}: {error}"
        text = self._engine.redactor.clean(words)
        return ToolResult(text=clip(text, self._engine.trees.shared.limits.text_cap), error=True)


def is_plain(answer: ToolResult) -> bool:
    """Whether it is a text of the types that were declared, which need not be looked at."""
    return answer.images == () and type(answer.text) is str and type(answer.error) is bool


def _without_links(request: RunRequest, root: str) -> RunRequest:
    """Paths are kept without links. A link put there later is detected, because directories are
    opened without following links."""
    cwd = os.path.realpath(os.path.join(root, request.cwd)) if request.cwd else ""
    return replace(request, cwd=cwd, permissions=real_paths(request.permissions))
