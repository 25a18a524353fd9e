"""All runs of a project, for `retinue top`: from the host if it is running, else from the store.

A thread listens to the host. All else, and the view itself, belongs to the code that calls
`refresh`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import msgspec

from retinue.cli.context import now_ms
from retinue.cli.terminal.log_reader import LogReader
from retinue.cli.terminal.wall_clock import midnight
from retinue.errors import HostGone, RetinueError
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.host.client import HostClient, connect_to_host
from retinue.host.http_exchange import HostNews
from retinue.host.launch import reach
from retinue.host.listing import ListedRun, RunListing, SpentSince
from retinue.host.project_paths import ProjectPaths
from retinue.host.record import RecordReader
from retinue.host.tree_items import CallsHeld
from retinue.view.call_summary import describe
from retinue.view.cells import plain
from retinue.view.rows import TreeView
from retinue.view.run_row import RunRow, as_paused
from retinue.view.stored_tree import recall
from retinue.view.transcript import Transcripts, message_lines
from retinue.view.updates import feed

RECENT_MS = 3_600_000
MINUTE = 60
BARS = "▁▂▃▄▅▆▇█"


class ProjectRuns:
    """The runs of one project as rows. `only` shows these trees."""

    def __init__(
        self, paths: ProjectPaths, env: Mapping[str, str], only: tuple[str, ...] = ()
    ) -> None:
        self._paths, self._env, self.only = paths, dict(env), only
        self.name = one_line(paths.root.rstrip("/").rpartition("/")[2], 40)
        self.view = TreeView(describe)
        self.said = Transcripts(describe)
        self.client: HostClient | None = None
        self.notices: list[str] = []
        self.today = SpentSince(0.0, 0.0, False)
        self.n_runs = 0
        self._is_looking = False
        self._heard: queue.SimpleQueue[tuple[HostClient, HostNews | None]] = queue.SimpleQueue()
        self._watched: dict[int, str] = {}
        self._asked: dict[int, Callable[[Any], None] | None] = {}
        self._paused: set[str] = set()
        self._lacks: dict[str, str] = {}
        self._loaded: set[str] = set()
        self._totals: deque[tuple[float, int]] = deque(maxlen=MINUTE + 1)
        self._rates: dict[str, deque[tuple[float, int]]] = {}

    def close(self) -> None:
        if self.client is not None:
            self.client.close()

    def refresh(self) -> None:
        """Take in what has happened since the last time."""
        self._connect()
        self._ask_for_waits()
        self.listen()
        with RunListing(self._paths) as listing:
            lines = listing.roots(recent_since=now_ms() - RECENT_MS, limit=200)
            open_roots = {line.root for line in listing.open_runs()}
            self.today = listing.spent_since(midnight())
        self.n_runs = len(open_roots)
        self._paused = {line.id for line in lines if line.state == "paused"}
        for line in reversed(lines):
            if not self.only or line.id in self.only:
                self._follow(line, has_open=line.id in open_roots)
        self.listen()
        self._measure()

    def _ask_for_waits(self) -> None:
        """Ask which calls are held back because their provider needs a pause: that is not a
        step."""
        if self.client is not None and not self._is_looking:
            self._is_looking = True
            self.ask(requests.StatusRequest(), self._seen)

    def _seen(self, status: dict[str, Any]) -> None:
        self._is_looking = False
        self._lacks = status.get("lacks", {})
        feed(self.view, CallsHeld.in_status(status), now_ms())

    def rows(self) -> list[RunRow]:
        return [self._row(id) for id in self.view.order()]

    def _row(self, id: str) -> RunRow:
        row = self.view.row(id, now_ms())
        if not row.is_over and (row.root in self._paused or row.id in self._lacks):
            return as_paused(row, self._lacks.get(row.id, ""))
        return row

    def _connect(self) -> None:
        if self.client is None:
            client = connect_to_host(self._paths, self._env)
            if client is not None:
                self._attend(client)

    def _attend(self, client: HostClient) -> None:
        self.client = client
        self._watched.clear()
        threading.Thread(
            target=self._receive, args=(client,), name="retinue top", daemon=True
        ).start()

    def _receive(self, client: HostClient) -> None:
        try:
            while True:
                self._heard.put((client, client.next_news()))
        except (HostGone, OSError, ValueError, msgspec.MsgspecError):
            self._heard.put((client, None))

    def listen(self) -> None:
        """Take in what the host has sent, without waiting."""
        while not self._heard.empty():
            client, news = self._heard.get()
            if client is not self.client:
                continue
            if news is None:
                self.client, self._is_looking = None, False
                self._loaded.clear()
                continue
            if news.error is not None:
                self._watched.pop(news.id, None)
                if news.id in self._asked:
                    self.notices.append(news.error.detail)
            elif news.item is not None:
                feed(self.view, news.item, now_ms(), self.said)
            if news.is_last or news.error is not None:
                then = self._asked.pop(news.id, None)
                if then is not None and news.error is None:
                    then(news.done)

    def _follow(self, line: ListedRun, *, has_open: bool) -> None:
        """`has_open`: a run of its tree is at work, also when it has ended itself."""
        is_open = line.ended_at is None
        if is_open and self.client is not None and line.id not in self._paused:
            if line.id not in self._watched.values():
                self._watched[
                    self.client.begin(requests.WatchRequest(run=line.id, deltas=True))
                ] = line.id
        elif has_open or line.id not in self._loaded:
            if not has_open:
                self._loaded.add(line.id)
            with RecordReader(self._paths) as reader:
                recall(self.view, reader, reader.tree(line.id))

    def _measure(self) -> None:
        at = time.monotonic()
        total = sum(top.tree_tokens for top in self.view.tops)
        if not self._totals or at - self._totals[-1][0] >= 0.9:
            self._totals.append((at, total))
        for id, node in self.view.nodes.items():
            if node.state == "running":
                marks = self._rates.setdefault(id, deque(maxlen=12))
                marks.append((at, node.tokens))
            else:
                self._rates.pop(id, None)

    def rate(self, id: str) -> float | None:
        """Tokens a second of one run, over the last seconds."""
        marks = self._rates.get(id)
        if not marks or len(marks) < 2 or marks[-1][0] - marks[0][0] < 0.5:
            return None
        return (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])

    def per_minute(self) -> tuple[str, int]:
        """The tokens of the last minute: as bars, and as a number."""
        marks = list(self._totals)
        steps = [max(0, after[1] - before[1]) for before, after in pairwise(marks)]
        return spark(steps), sum(steps)

    def transcript(self, id: str) -> list[tuple[str, str]]:
        """The messages of a run; from the file if the run is not watched."""
        lines = self.said.of(id)
        if lines or id not in self.view.nodes:
            return lines
        with RecordReader(self._paths) as record:
            row = record.row(id)
            messages = [] if row is None else record.conversation(row)[-50:]
        return [pair for message in messages for pair in message_lines(message, describe)]

    def log(self, id: str, width: int) -> str:
        """All messages of a run, as `retinue logs` prints them."""
        with RunListing(self._paths) as listing:
            line = listing.line(id)
        if line is None:
            return "This run was deleted."
        with RecordReader(self._paths) as record:
            log = LogReader(record, line, width)
            lines = log.more()
            return "\n".join(plain(part) for part in [*lines, *([] if log.is_over else log.now())])

    def ask(self, want: requests.HostRequest, then: Callable[[Any], None] | None = None) -> None:
        """Ask the host for something; one is started when there is none. What it refuses becomes a
        notice."""
        try:
            if self.client is None:
                self._attend(reach(self._paths, self._env))
            assert self.client is not None
            self._asked[self.client.begin(want)] = then
        except (RetinueError, OSError) as error:
            self.notices.append(str(error))


def spark(steps: list[int], width: int = 12) -> str:
    """Numbers as bars, the last ones at the right."""
    group = max(1, -(-len(steps) // width))
    sums = [sum(steps[i : i + group]) for i in range(0, len(steps), group)][-width:]
    most = max(sums, default=0)
    return "".join(BARS[min(7, n * 8 // most)] if most and n else BARS[0] for n in sums)
