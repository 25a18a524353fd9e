"""Actions of a person or a program on existing runs: write, answer, decide, restrict, end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, overload

import msgspec

from retinue.core.events import MailReceived, PermissionsRestricted, Woke
from retinue.core.run_mail import cannot_write
from retinue.core.state import account_refusal
from retinue.core.type_parameters import RunId, T
from retinue.core.values import Mail, Permissions, Who, checked
from retinue.errors import ConfigError, NotFound, Refused
from retinue.open_questions import OpenQuestion, answer_to, decision, find_question, open_questions
from retinue.outcomes import Outcome
from retinue.question_types import (
    BudgetQuestion,
    PermissionQuestion,
    Question,
    TextQuestion,
    typed_question,
)
from retinue.reads import Reads
from retinue.sandbox.open_directories import real_paths
from retinue.tools.checked_verbs import checks_arguments

_encode = msgspec.json.Encoder(enc_hook=str).encode


@checks_arguments
class Acts(Reads):
    """The part of `Retinue` that acts on runs."""

    @overload
    async def cancel(self, run: RunId[T], reason: str = "", *, by: Who = "user") -> Outcome[T]: ...
    @overload
    async def cancel(self, run: str, reason: str = "", *, by: Who = "user") -> Outcome[Any]: ...
    async def cancel(self, run: str, reason: str = "", *, by: Who = "user") -> Outcome[Any]:
        """End a run and everything below it, also when it has ended itself; returns how it really
        ended."""
        await self._engine.look(run)
        while open_ := self._engine.trees.first_open(run):
            await self._end(open_, reason, by)
            await self._engine.look(run)
        return await self.wait(run)

    async def send(self, run: str, text: str, *, steer: bool = False) -> None:
        """Put a message into a run's mailbox. It is read at the next turn; `steer` breaks the
        current one off."""
        self._engine.check(run)
        await self._engine.look(run)
        tree = self._engine.trees.of(run)
        why: str | None = f"{run!r} is not an open run that you can send to."
        if tree is not None:
            why = cannot_write(tree, "", run)
        if why is not None:
            await self._row(run)
            raise Refused("mail", why)
        await self._record(run, MailReceived(mail=Mail(seq=0, text=text, steer=steer)))

    async def retry(self, root: str = "", *, refused: Callable[[str], bool] | None = None) -> None:
        """Runs that wait for their provider try again now, all or those of a tree: a key or money
        was added. With `refused`, only those whose account was refused and of whose model's name it
        is true."""
        self._registry.learn_keys()
        self._registry.know_models()
        await self._engine.found.take_up()
        await self._engine.look(root)
        for id in self._engine.waiting_for_provider(root):
            spec, run = self._engine.trees.spec(id), self._engine.trees.run(id)
            if (
                spec is None
                or run is None
                or (refused and not (account_refusal(run) and refused(spec.model)))
            ):
                continue
            await self._engine.record(id, Woke(early=True))

    async def questions(
        self, run: str | None = None, *, live: bool = False
    ) -> AsyncIterator[Question]:
        """What waits for a person, in one tree or in all. With `live`, also what will be asked from
        now on: for a tree until its run has ended, otherwise for as long as you listen."""
        self._check_loop()
        known_ids, end = set[str](), None
        with self._engine.bus.watch() as watcher:
            if run is not None and not await self._has_ended(run):
                end = self._engine.ended(run)
            try:
                while True:
                    watcher.catch_up()
                    for q in await self.open_questions(run or ""):
                        if q.id not in known_ids:
                            known_ids.add(q.id)
                            spending = await self.budget(q.run) if q.kind == "budget" else None
                            yield typed_question(q, spending)
                    if not live or (run is not None and (end is None or end.done())):
                        return
                    await watcher.change(end)
            finally:
                if end is not None:
                    end.cancel()

    async def open_questions(self, root: str = "") -> Sequence[OpenQuestion]:
        """All that waits for a person now, in all runs or in one tree, with what a screen shows of
        it."""
        await self._engine.look(root)
        look = (root, self._registry.preview, self._clock.now(), self._engine.performer.look_ahead)
        return await open_questions(self._engine.trees, self._store.messages, *look)

    async def answer(self, question: TextQuestion | str, text: str, *, by: str = "") -> None:
        """Answer an open question, or the one of this id; a run names its question as long as it
        asks nothing else."""
        self._check_loop()
        name = question if isinstance(question, str) else question.id
        await self._engine.look()
        await self._record(*answer_to(self._engine.trees, name, text, by))

    async def decide(
        self,
        question: PermissionQuestion | BudgetQuestion | str,
        allow: bool,
        *,
        by: str = "",
        reason: str = "",
        always: bool = False,
    ) -> None:
        """Permit a call, or do not; raise a limit by what is suggested, or let the work land. The
        first decision counts; a later one is `Refused`. With `always`, the same call is permitted
        in this tree from now on."""
        self._check_loop()
        name = question if isinstance(question, str) else question.id
        await self._engine.look()
        q = await find_question(self._engine.trees, self._store.messages, name)
        await self._record(q.run, decision(q, allow, by, reason, always))

    async def explain(
        self, run: str, tool: str, arguments: Mapping[str, Any] | str | None = None
    ) -> str:
        """Whether a live run may call a tool, and which rule says so. The arguments are those of
        the call, by name or as its JSON."""
        self._check_loop()
        args = arguments if isinstance(arguments, str) else _encode(arguments or {}).decode()
        await self._engine.look(run)
        tree = self._engine.trees.of(run)
        if tree is None:
            raise NotFound(f"No open run {run!r}. It may have ended.", "run", run)
        return tree.explain(run, tool, args, self._clock.now())

    async def restrict(self, run: str, permissions: Permissions) -> None:
        """Take capabilities away from a live run and everything below it."""
        self._check_loop()
        await self._engine.look(run)
        if self._engine.trees.run(run) is None:
            raise NotFound(f"No open run {run!r}. It may have ended.", "run", run)
        try:
            event = PermissionsRestricted(permissions=real_paths(checked(permissions)))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Invalid capabilities: {error}") from None
        await self._record(run, event)
