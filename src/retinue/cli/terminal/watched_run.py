"""A run that the user watches: events from the host, the user's keys, and the end.

A view asks for the `next` thing and shows it. Signals are dealt with here: the first Ctrl-C cancels
the run and waits for it, the second leaves."""

from __future__ import annotations

import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal

import msgspec

from retinue.cli import exit_codes
from retinue.host import requests
from retinue.host.client import HostClient
from retinue.host.problem_documents import error_of
from retinue.host.tree_items import CallsHeld, RunAdded, RunChanged, Stepped, TreeItem
from retinue.tree_record import RunRecord, TreeRecord
from retinue.view import format as view_format
from retinue.view import parked_runs
from retinue.view.totals import has_ended, limit_of, more_of, provider_wait, waits_for, waits_kind

LOOK_SECONDS = 1.0
"""How often the host is asked whether all runs are blocked, or some wait for a provider: neither is
a step of a run."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A note for the user."""

    text: str


class WatchLeft(Exception):
    """Waiting is over: the user left, or waiting would be useless, as `lines` say. `code` is the
    exit code."""

    def __init__(self, code: int, *lines: str) -> None:
        super().__init__(code)
        self.code, self.lines = code, lines


class Signals:
    """Ctrl-C, SIGTERM and SIGHUP as something to be read, not as an exception anywhere."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._in, self._out = socket.socketpair()
        self._before: dict[int, Any] = {}
        self._fd = -1

    def __enter__(self) -> Signals:
        self._in.setblocking(False)
        self._out.setblocking(False)
        for number in self.NUMBERS:
            self._before[number] = signal.signal(number, _nothing)
        self._fd = signal.set_wakeup_fd(self._out.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.set_wakeup_fd(self._fd)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._in.close()
        self._out.close()

    def fileno(self) -> int:
        return self._in.fileno()

    def take(self) -> list[int]:
        try:
            return [n for n in self._in.recv(64) if n in self.NUMBERS]
        except BlockingIOError:
            return []


def _nothing(number: int, frame: FrameType | None) -> None:
    """The wake-up file tells."""


Thing = TreeItem | TreeRecord | Notice


@dataclass
class WatchedRun:
    """One run that is watched through a connection. `is_ours`: Ctrl-C cancels it, instead of only
    leaving it. `waits`: the user will answer questions about limits; otherwise watching ends when
    nothing else could continue."""

    client: HostClient
    run: str
    signals: Signals
    is_ours: bool = True
    deltas: bool = False
    after: int = 0
    waits: bool = True
    final: TreeRecord | None = None
    presses: list[int] = field(default_factory=list)
    listen: Callable[[TreeItem], object] | None = None
    _replies: dict[int, Callable[[Any], None]] = field(default_factory=dict)
    _number: int = 0
    _looking: int = 0
    _looked_at: float = field(default_factory=time.monotonic)
    _trouble: str = ""
    _has_held: bool = False
    _rows: dict[str, RunRecord] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)
    _is_news: bool = False

    def next(
        self, timeout_seconds: float | None = None, also: Callable[[], int] | None = None
    ) -> Thing | None:
        """The next thing, or None when the time is over or `also` (a file's number) can be read.
        The `TreeRecord` is last; after it this must not be called again."""
        if not self._number:
            self._number = self.client.begin(
                requests.WatchRequest(run=self.run, after=self.after, deltas=self.deltas)
            )
        while True:
            self._check_soon()
            if not self.client.has_news():
                self._leave_parked()
                files: list[Any] = [
                    self.client,
                    self.signals,
                    *([also()] if also is not None else []),
                ]
                ready, _, _ = select.select(
                    files, [], [], LOOK_SECONDS if timeout_seconds is None else timeout_seconds
                )
                if self.signals in ready:
                    return self._signalled()
                if not ready and timeout_seconds is None:
                    continue
                if self.client not in ready:
                    return None
                self.client.read_ready()
                if not self.client.has_news():
                    continue  # a sign of life, or a part of what is to come
            news = self.client.next_news()
            if self._looking and news.id == self._looking and news.error is None:
                self._looking = 0
                if (notice := self._seen(news.done)) is not None:
                    return notice
                continue
            if news.error is not None:
                if news.id in (self._number, 0):
                    raise error_of(news.error)
                self._replies.pop(news.id, None)
                return Notice(news.error.detail)
            if news.id in self._replies:
                self._replies.pop(news.id)(news.done)
                return None
            if news.id != self._number:
                continue
            if news.is_last:
                self.final = msgspec.convert(news.done, TreeRecord)
                return self.final
            if news.item is not None:
                self._note(news.item)
                return news.item

    def _note(self, item: TreeItem) -> None:
        if self.listen is not None:
            self.listen(item)
        if isinstance(item, Stepped):
            self.after = item.seq
        if isinstance(item, RunAdded):
            self._begun.add(item.spec.id)
        if isinstance(item, RunChanged):
            self._rows[item.row.spec.id] = item.row.record
            self._is_news = True

    def _leave_parked(self) -> None:
        """Do not wait for a run that will not move by itself. This is looked at when everything
        that came was shown."""
        if not self._is_news:
            return
        self._is_news, rows = False, self._rows.values()
        if (row := parked_runs.refused(rows)) is not None:
            wait = provider_wait(row)
            assert wait is not None
            raise WatchLeft(
                exit_codes.NO_PROVIDER,
                *parked_runs.refusal_lines(
                    wait, waits_for(row), view_format.short_id(self.run), exit_codes.NO_PROVIDER
                ),
            )
        if self.waits or self._begun - self._rows.keys():
            return
        if (row := parked_runs.at_limit(rows)) is not None:
            about = view_format.short_id(limit_of(row))
            advice = parked_runs.advice(
                waits_kind(row), waits_for(row), row.spec.model, about, more_of(row)
            )
            raise WatchLeft(exit_codes.NEEDS_INPUT, f"◆ needs you: {advice}")

    def _check_soon(self) -> None:
        if not self._looking and time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._looking = self.client.begin(requests.StatusRequest())

    def _seen(self, status: dict[str, Any]) -> Notice | CallsHeld | None:
        """What is new in the state of the host."""
        if (trouble := status.get("trouble", "")) != self._trouble:
            self._trouble = trouble
            return Notice(trouble or "The problem is resolved; the run continues.")
        calls_held = CallsHeld.in_status(status)
        if not calls_held.calls and not self._has_held:
            return None
        self._has_held = bool(calls_held.calls)
        if self.listen is not None:
            self.listen(calls_held)
        return calls_held

    def _signalled(self) -> Thing | None:
        notice: Notice | None = None
        for number in self.signals.take():
            if number == signal.SIGHUP:
                raise WatchLeft(exit_codes.FAILED)
            self.presses.append(number)
            code = exit_codes.INTERRUPTED if number == signal.SIGINT else exit_codes.TERMINATED
            if not self.is_ours or len(self.presses) > 1:
                raise WatchLeft(code)
            self.cancel("SIGTERM" if number == signal.SIGTERM else "")
            rest = "partial results are kept. Ctrl-C again exits now."
            notice = Notice(f"Stopping{self._who_stops}; {rest}")
        return notice

    @property
    def _who_stops(self) -> str:
        n_over = sum(map(has_ended, self._rows.values()))
        n_open = len(self._begun | self._rows.keys()) - n_over
        return f" {n_open} agents" if n_open > 1 else ""

    def cancel(self, signal_name: str = "") -> None:
        """Ask for the end of the run; it is shown like everything else. A signal comes from another
        program."""
        by: Literal["user", "system"] = "system" if signal_name else "user"
        self.client.begin(requests.CancelRequest(runs=(self.run,), reason=signal_name, by=by))

    def send(self, run: str, text: str, *, steer: bool = False) -> None:
        self.client.begin(requests.SendRequest(run=run, text=text, steer=steer))

    def ask(self, want: requests.HostRequest, then: Callable[[Any], None]) -> None:
        """Ask the host for something, and use its reply while the run is watched."""
        self._replies[self.client.begin(want)] = then

    def answer(self, run: str, **fields: Any) -> None:
        self.client.begin(requests.AnswerRequest(run=run, **fields))

    @property
    def code(self) -> int | None:
        """The exit code of a signal, if there was one."""
        if not self.presses:
            return None
        return exit_codes.INTERRUPTED if self.presses[0] == signal.SIGINT else exit_codes.TERMINATED
