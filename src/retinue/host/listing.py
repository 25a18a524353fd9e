"""Reads a store without its host and without importing the engine: enough for listings, ids and
completion. More than half of what a listing costs is reading Python, so that not even msgspec is
imported here."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from retinue.core.state_names import ENDS, agent_label, short_id, shown_state, state_text
from retinue.errors import NotFound, StoreCorrupt
from retinue.formats.safe_text import one_line
from retinue.host.project_paths import ProjectPaths
from retinue.host.provider_waits import ProviderWait, of_record

LATEST = ("latest", "last", "@")
MOST = 8
_HEX = re.compile(r"[0-9a-f-]+")
SELECT = """
select r.id, r.parent, r.root, s.body, r.body, r.state, r.created_at, r.ended_at, r.account,
(select count(*) from runs b where b.root = r.id and b.parent <> '')
from runs r join specs s on s.run = r.n"""


class ListedRun(NamedTuple):
    """One run of a listing. `tokens` and `usd` (None: its model's price is not known) are of its
    whole tree, `own_tokens` of itself; what of them is only a bound is in `tokens_estimated` and
    `usd_estimated`. `waits_for` is what keeps its provider, when it waits for it; or what is asked
    about the limit, of the run `limit_of`, at which it waits, and `more` what to add to it
    (nano-dollars where it is dollars). `cache` is what prompt caches were expected to give to its
    tree, and gave. `group` is the group of background work that it belongs to. `provider_wait` says
    what its provider answered, and when it is tried again. `stop` is why it has ended, and
    `is_thinking` says that its model is at work. `n_agents` counts the runs of its tree, None where
    it is itself below another."""

    id: str
    short: str
    parent: str
    root: str
    label: str
    agent: str
    state: str
    task: str
    model: str
    depth: int
    turn: int
    created_at: int
    started_at: int | None
    ended_at: int | None
    own_tokens: int
    tokens: int
    usd: float | None
    waits_for: str = ""
    waits_kind: str = ""
    tokens_estimated: int = 0
    usd_estimated: float = 0.0
    cost_is_known: bool = True
    cache: dict[str, Any] | None = None
    limit_of: str = ""
    more: int = 0
    group: str = ""
    provider_wait: ProviderWait | None = None
    stop: str = ""
    is_thinking: bool = False
    n_agents: int | None = None

    def as_json(self) -> dict[str, Any]:
        wait = self.provider_wait
        return {
            **self._asdict(),
            "provider_wait": None if wait is None else wait._asdict(),
            "is_offline": self.is_offline,
        }

    @property
    def is_paused(self) -> bool:
        """Whether it is open, and no host is there to continue it."""
        return self.state == "paused"

    @property
    def is_offline(self) -> bool:
        """Whether the explorer leads it, which is not a model, and nothing was paid."""
        return self.model.startswith("offline/") and not self.usd

    @property
    def name(self) -> str:
        """What it is called, for people."""
        return f"{one_line(self.label, 60)} {self.short}"


class SpentSince(NamedTuple):
    """What was paid since some moment: `usd` for sure, `at_most` at most; with `is_partial` there
    are calls with an unknown price."""

    usd: float
    at_most: float
    is_partial: bool


class ListedRows(Protocol):
    """The store that a listing is made from."""

    def lines(self, tail: str, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The rows of `SELECT` with this tail, in SQLite's words; and the names and bodies of all
        models."""

    def version(self) -> int:
        """Changes when anything was committed."""

    def is_held(self) -> bool:
        """Whether a process holds the store."""

    def close(self) -> None: ...


def _open_rows(paths: ProjectPaths) -> ListedRows | None:
    if paths.database:
        from retinue.host.listing_database import DatabaseRows

        return DatabaseRows(paths.database)
    from retinue.host.listing_file import FileRows

    return FileRows(paths.store) if os.path.exists(paths.store) else None


class RunListing:
    """A store that is only looked at. One whose file is missing is empty."""

    def __init__(self, paths: ProjectPaths) -> None:
        self.paths = paths
        self._rows = _open_rows(paths)
        self._unpriced: set[str] = set()
        self._attended = self._rows is not None and self._rows.is_held()

    def __enter__(self) -> RunListing:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._rows is not None:
            self._rows.close()

    def roots(self, *, recent_since: int | None = None, limit: int = 1_000) -> list[ListedRun]:
        """Runs that a person started, newest first: all, or those that are open or have ended
        since."""
        where, args = "where r.parent = ''", list[Any]()
        if recent_since is not None:
            where += " and (r.open = 1 or r.ended_at >= ?)"
            args.append(recent_since)
        return list(self._lines(f"{where} order by r.n desc limit ?", (*args, limit)))

    def spent_since(self, moment: int) -> SpentSince:
        """What was paid from a moment on. What runs have spent that began before it is not known by
        the hour: all of it is in the bound, and none in the sum."""
        where = "where r.parent = '' and (r.created_at >= ? or r.open = 1 or r.ended_at >= ?)"
        lines = list(self._lines(where, (moment, moment)))
        paid = [(line, (line.usd or 0.0) - line.usd_estimated) for line in lines]
        return SpentSince(
            sum(usd for line, usd in paid if line.created_at >= moment),
            sum(line.usd or 0.0 for line in lines),
            any(line.usd is None and line.tokens for line in lines),
        )

    def below(self, root: str) -> list[ListedRun]:
        """Everything below a root, in the order in which it came."""
        return list(self._lines("where r.root = ? and r.parent <> '' order by r.n", (root,)))

    def line(self, id: str) -> ListedRun | None:
        return next(self._lines("where r.id = ?", (id,)), None)

    def open_runs(self) -> list[ListedRun]:
        return list(self._lines("where r.open = 1 order by r.n", ()))

    def version(self) -> int:
        """Changes when anything was committed."""
        return 0 if self._rows is None else self._rows.version()

    def _lines(self, tail: str, args: Sequence[Any]) -> Iterator[ListedRun]:
        if self._rows is None:
            return
        rows, models = self._rows.lines(tail, args)
        id = ""
        try:
            self._unpriced = {name for name, body in models if not _is_priced(json.loads(body))}
            for id, parent, root, spec, run, state, *times, account, n_below in rows:
                line = self._line(
                    id, parent, root, json.loads(spec), json.loads(run), state, times, account
                )
                yield line if parent else line._replace(n_agents=1 + n_below)
        except (ValueError, KeyError, TypeError, AttributeError):
            what = f"the record of run {id}" if id else "the record of a model"
            raise StoreCorrupt(
                f"{self.paths.shown_store} is damaged: {what} cannot be read. Nothing was "
                "changed. Run `retinue doctor`."
            ) from None

    def _line(
        self,
        id: str,
        parent: str,
        root: str,
        spec: dict[str, Any],
        run: dict[str, Any],
        state: str,
        times: Sequence[Any],
        account: bytes | None,
    ) -> ListedRun:
        request, usage = spec["order"], run.get("usage", {})
        books = json.loads(account) if account else {}
        spent, guess = books.get("spent") or [0, 0, 0, 0], books.get("guess") or [0, 0, 0]
        word, model = shown_state(state), spec.get("model", "")
        at = run.get("state", {})
        wait = of_record(at, spec)
        waits_for = at.get("waits_for", "") if wait is not None else ""
        limit_of = at.get("account", "") if at.get("asks") else ""
        if limit_of == id:
            word = "needs_input"
        elif waits_for:
            word = "waiting"
        waits_kind = at.get("waits_kind", "") if waits_for else ""
        has_unpriced = model in self._unpriced and not spent[1]
        return ListedRun(
            id=id,
            short=short_id(id),
            parent=parent,
            root=root,
            label=agent_label(request.get("label") or request["agent"]),
            agent=agent_label(request["agent"]),
            state=word if self._attended or word in ENDS else "paused",
            task=request.get("task", ""),
            model=model,
            depth=spec.get("depth", 0),
            turn=run.get("turn", 0),
            created_at=times[0],
            started_at=run.get("started_at"),
            ended_at=times[1],
            own_tokens=sum(usage.get(part, 0) for part in ("input", "output", "estimated")),
            tokens=spent[0],
            usd=None if has_unpriced or guess[2] else spent[1] / 1e9,
            waits_for=at["asks"] if limit_of else waits_for,
            waits_kind=at["lack"] if limit_of else waits_kind,
            tokens_estimated=guess[0],
            usd_estimated=guess[1] / 1e9,
            cost_is_known=not (guess[1] or guess[2] or (model in self._unpriced and spent[0])),
            cache=cache_json(books.get("cache", {})),
            limit_of=limit_of,
            more=at.get("more", 0),
            group=request.get("group", "") if request.get("group_size") else "",
            provider_wait=wait,
            stop=at.get("ending", {}).get("stop", ""),
            is_thinking=state == "thinking",
        )

    def open_group(self, id: str) -> list[ListedRun]:
        """Who is still at work in a group of background work."""
        return [line for line in self.open_runs() if line.group == id] if id else []

    def resolve(self, address: str) -> ListedRun:
        """The run that an address means: part of an id, a name, `latest`, or `run/agent` for one
        below it."""
        head, *rest = [part for part in address.strip().split("/") if part] or [""]
        line = self._pick(self._heads(head), address)
        for part in rest:
            line = self._pick(_named(part, self._under(line)), address)
        return line

    def _heads(self, head: str) -> list[ListedRun]:
        if head in LATEST:
            return self.roots(limit=1)
        if _HEX.fullmatch(head.lower()):
            begins, ends = head.lower() + "*", "*" + head.lower()
            newest = "order by r.n desc limit 50"
            at_start = f"where r.id glob ? or substr(r.id, 25) glob ? {newest}"
            if matches := list(self._lines(at_start, (begins, begins))) or list(
                self._lines(f"where r.id glob ? {newest}", (ends,))
            ):
                exact = [line for line in matches if line.id == head]
                return exact or matches
        return _named(head, self.roots(limit=10_000), newest=True) if head else []

    def _under(self, top: ListedRun) -> list[ListedRun]:
        lines, tree_ids = self.below(top.root), {top.id}
        out = []
        for line in lines:
            if line.parent in tree_ids:
                tree_ids.add(line.id)
                out.append(line)
        return out

    def _pick(self, matches: list[ListedRun], address: str) -> ListedRun:
        if not matches:
            where = self.paths.root
            raise NotFound(
                f"Run {address!r} not found in {where}. Run `retinue ps --all --tree` to list runs."
            )
        if len(matches) > 1:
            listed = "; ".join(
                f"{line.short} ({one_line(line.label, 60)}, {state_text(line.state)}: "
                f"{one_line(line.task, 40)})"
                for line in matches[:MOST]
            )
            more = f"; and {len(matches) - MOST} more" if len(matches) > MOST else ""
            raise NotFound(
                f"{address!r} matches {len(matches)} runs: {listed}{more}. Use more of the id."
            )
        return matches[0]


def _is_priced(model: dict[str, Any]) -> bool:
    return None not in (model.get("price_in"), model.get("price_out"))


def _named(name: str, lines: list[ListedRun], *, newest: bool = False) -> list[ListedRun]:
    """Those of this name; otherwise those whose name or id begins so. `newest`: of several with one
    name the last."""
    exact = [line for line in lines if name in (line.label, line.agent)]
    if exact:
        return exact[:1] if newest and exact[0].label != "main" else exact
    return [line for line in lines if line.label.startswith(name) or line.short.startswith(name)]


def cache_json(figures: Mapping[str, Any]) -> dict[str, Any]:
    """What prompt caches were expected to give, and gave: as JSON, from the recorded figures. A
    price that no one knows is null."""
    is_known = not figures.get("unpriced", 0)
    return {
        "expected_tokens": figures.get("expected", 0),
        "read_tokens": figures.get("read", 0),
        "written_tokens": figures.get("written", 0),
        "expected_usd": figures.get("expected_nanos", 0) / 1e9 if is_known else None,
        "saved_usd": figures.get("saved_nanos", 0) / 1e9 if is_known else None,
    }
