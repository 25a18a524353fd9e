"""Bugs in what runs may spend: accounts, the ledger, its lines and its questions."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

MUTATIONS = [
    Mutation(
        "only the run's own budget is asked",
        "core/ledger.py",
        "            for n, account in enumerate(self.chain(id)):\n",
        "            for n, account in enumerate(self.chain(id)[:1]):\n",
    ),
    Mutation(
        "a bound is known to be one in its own run alone",
        "core/ledger.py",
        "        for account in chain if guess != SURE else ():\n",
        "        for account in chain[:1] if guess != SURE else ():\n",
    ),
    Mutation(
        "what comes back is told to nobody who waits for it",
        "core/ledger.py",
        "            if sign < 0 and self.waits:\n",
        "            if False:\n",
    ),
    Mutation(
        "nobody waits for what others hold",
        "core/ledger.py",
        "                if need and verdict is GO and (is_late or",
        "                if False and (is_late or",
    ),
    Mutation(
        "only the first in line is ever told",
        "core/budget_queues.py",
        "            self.ease(spot[0])\n",
        "            pass\n",
    ),
    Mutation(
        "who comes later is served first",
        "core/ledger.py",
        "        if first is not None and first[1] < ticket:\n            return True\n",
        "        return False\n",
    ),
    Mutation(
        "who has a grant waits for the grants of others",
        "core/ledger.py",
        "new_draws.append(Draw(account, amounts, n == 0, has_grant))",
        "new_draws.append(Draw(account, amounts, n == 0, False))",
    ),
    Mutation(
        "a grant is waited for in which everybody waits for mail",
        "core/ledger.py",
        " or not self._moving.get(id):",
        ":",
    ),
    Mutation(
        "a raised limit wakes nobody",
        "core/ledger.py",
        "            self.ease(one.id)\n",
        "            pass\n",
    ),
    Mutation(
        "a raised limit is lost by a restart",
        "core/ledger.py",
        "        self.touched[account.id] = account\n        for one in",
        "        for one in",
    ),
    Mutation(
        "everybody who waits at one limit asks",
        "core/ledger.py",
        "        is_news = self._is_news(account, lack)\n",
        "        is_news = True\n",
    ),
    Mutation(
        "an answer to an old question counts",
        "core/limit_questions.py",
        "    if event.question and (",
        "    if False and (",
    ),
    Mutation(
        "what a child gets more is taken from nobody",
        "core/ledger.py",
        "        self.hold(account.parent, funded(account, add))\n",
        "",
    ),
    Mutation(
        "more is given to a child than there is",
        "core/limit_questions.py",
        "        if free is not None and free < more:",
        "        if False:",
    ),
    Mutation(
        "a grant does not go back", "core/ledger.py", "            self._give_back(account)\n", ""
    ),
    Mutation(
        "what is held counts as free",
        "core/account.py",
        "limit - self.spent[i] - self.held[i] - self.reserve[i]",
        "limit - self.spent[i] - self.reserve[i]",
    ),
    Mutation(
        "a limit in dollars does not bind what has lost its price",
        "core/turn.py",
        "    if _has_lost_price(run, ctx):\n",
        "    if False:\n",
    ),
    Mutation(
        "what a cache gave to a child nobody above it knows",
        "core/ledger.py",
        "        for account in self.chain(id):\n            account.cache",
        "        for account in self.chain(id)[:1]:\n            account.cache",
    ),
]
