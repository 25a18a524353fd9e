"""The state of a runtime in one value, with the reason if its runs are stalled."""

from __future__ import annotations

from typing import Any

from retinue.core.values import Value


class Health(Value):
    """`trouble` says why nothing is written: a full disk, a lost store. `unknown_agents` are the
    agents of open runs that this program has not named; their runs wait. `models` are how it goes
    with each model that was asked over the network (`retinue.models.ModelStatus`)."""

    ok: bool
    trouble: str = ""
    open_runs: int = 0
    unknown_agents: tuple[str, ...] = ()
    models: tuple[Any, ...] = ()
