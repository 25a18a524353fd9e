"""All planted bugs."""

from __future__ import annotations

from tests.simulation.mutations import budgets, calls, endings, recovery, runs, steps, trees
from tests.simulation.mutations.mutation import Mutation

MUTATIONS: list[Mutation] = [
    *budgets.MUTATIONS,
    *calls.MUTATIONS,
    *endings.MUTATIONS,
    *recovery.MUTATIONS,
    *runs.MUTATIONS,
    *steps.MUTATIONS,
    *trees.MUTATIONS,
]
