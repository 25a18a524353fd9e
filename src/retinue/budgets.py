"""Shows and changes the budgets of existing runs."""

from __future__ import annotations

import math

from retinue.core.account import Account
from retinue.core.events import LimitChanged
from retinue.core.limit_questions import cannot_change, open_questions
from retinue.core.values import NANOS_PER_USD, OnLimit
from retinue.errors import ConfigError, Refused
from retinue.maintenance import Housekeeping
from retinue.spending import Spending, spending_of
from retinue.tools.checked_verbs import checks_arguments


@checks_arguments
class Budgets(Housekeeping):
    """The part of `Retinue` that tells and changes what runs may spend."""

    async def budget(self, run: str) -> Spending:
        """The limits of a run, what is spent of them, and what is held."""
        row = await self._row(run)
        await self._engine.look(run)
        tree = self._engine.trees.of(run)
        live = tree.ledger.accounts.get(run) if tree is not None else None
        account = live or await self._store.account(run) or Account(id=run)
        questions = (
            (q.id for q in open_questions(tree) if q.account == run) if tree is not None else ()
        )
        return spending_of(row, account, self._clock.now(), tuple(questions))

    async def add_budget(
        self,
        run: str,
        *,
        tokens: int = 0,
        usd: float = 0.0,
        turns: int = 0,
        calls: int = 0,
        seconds: float = 0.0,
        question: str = "",
        by: str = "",
    ) -> Spending:
        """Raise the limits of an open run, whether or not it has asked; with a `question`, only as
        the first answer to it. Runs that wait there continue. What a child's limit gets more is
        taken from its parent's, or `Refused` says how much there is."""
        if not all(math.isfinite(amount) for amount in (tokens, usd, turns, calls, seconds)):
            raise ConfigError("A limit is raised by a finite amount. Nothing was changed.")
        add = (int(tokens), round(usd * NANOS_PER_USD), int(turns), int(calls))
        return await self._change(
            run, LimitChanged(add=add, more_ms=round(seconds * 1000), question=question, by=by)
        )

    async def set_on_limit(self, run: str, on_limit: OnLimit, *, by: str = "") -> Spending:
        """What happens at the limits of an open run from now on. With `land`, a run that waits for
        an answer takes its last turn; with `ask`, a person is asked at the next limit."""
        if on_limit not in ("land", "ask", "stop"):
            raise ConfigError(
                f"on_limit must be land, ask or stop, not {on_limit!r}. Nothing was changed."
            )
        return await self._change(run, LimitChanged(then=on_limit, by=by))

    async def _change(self, run: str, event: LimitChanged) -> Spending:
        self._engine.check(run)
        await self._engine.look(run)
        tree = self._engine.trees.of(run)
        if tree is None:
            await self._row(run)
            raise Refused(
                "budget",
                f"Run {run} has ended, so its budget cannot be changed. Resume it with a new one.",
            )
        if why := cannot_change(tree, run, event):
            raise Refused("budget", why)
        await self._record(run, event)
        return await self.budget(run)
