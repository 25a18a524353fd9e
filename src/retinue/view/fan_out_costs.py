"""What a fan-out should cost, shown once when it starts: the children of one turn together,
whichever calls started them."""

from __future__ import annotations

from retinue.core.spec import RunSpec
from retinue.view import format as view_format
from retinue.view.totals import tag_json

SETTLED_MS = 250
OLD_MS = 60_000
"""A viewer who comes later does not see fan-outs that started so long ago."""


class FanOuts:
    """Children as they begin, by parent and turn. Free ones, and one that starts afresh, are not
    worth a line."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int], list[RunSpec]] = {}
        self._grown: dict[tuple[str, int], tuple[int, int]] = {}

    def add(self, spec: RunSpec) -> None:
        if spec.tag is not None and spec.parent_call is not None:
            self._begun.setdefault((spec.parent, spec.parent_call.turn), []).append(spec)

    @property
    def is_open(self) -> bool:
        """Whether there is something to tell, now or soon."""
        return bool(self._begun)

    def take(self, now: int, settled_ms: int = SETTLED_MS) -> list[str]:
        """One line for each fan-out that was not shown yet and has not grown for so long."""
        out = []
        for key, specs in list(self._begun.items()):
            n, since = self._grown.get(key, (0, now))
            self._grown[key] = n, since = len(specs), since if n == len(specs) else now
            if now - since >= settled_ms:
                del self._begun[key], self._grown[key]
                is_recent = now - specs[-1].created_at < OLD_MS
                out += [line(specs)] if is_recent and _is_worth_it(specs) else []
        return out


def _is_worth_it(specs: list[RunSpec]) -> bool:
    is_free = all(spec.tag is not None and spec.tag.plain_nanos == 0 for spec in specs)
    return not is_free and (len(specs) > 1 or specs[0].base is not None)


def line(specs: list[RunSpec]) -> str:
    return view_format.price_tag(tag_json(*specs) or {})
