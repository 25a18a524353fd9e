"""`python -m tests.crash.main --kills N`: kill a program N times, start it again each time, and count what is missing.

The last line of the output is one line of JSON; the exit code is 1 when anything was lost, repeated or broken.
"""

from __future__ import annotations

import argparse
import os
import secrets
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from tests.crash import planted
from tests.crash.checker import KINDS
from tests.crash.killer import Report, run_workload
from tests.crash.workload import POINTS

PROGRESS_SECONDS = 5.0


@dataclass
class Total:
    seed: int
    kills: int = 0
    workloads: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    outcome_unknown: int = 0
    reruns: int = 0
    repeats: int = 0
    late: bool = False

    def add(self, report: Report) -> None:
        self.kills += report.kills
        self.workloads += 1
        self.points.update(report.points)
        self.faults.update(fault.kind for fault in report.faults)
        self.outcome_unknown += report.outcome_unknown
        self.reruns += report.reruns
        self.repeats += report.repeats

    def line(self, seconds: float) -> str:
        whole = {
            "kills": self.kills,
            "workloads": self.workloads,
            **{kind: self.faults[kind] for kind in KINDS},
            "outcome_unknown": self.outcome_unknown,
            "reruns": self.reruns,
            "repeats": self.repeats,
            "points": dict(sorted(self.points.items())),
            "seed": self.seed,
            "seconds": round(seconds, 1),
            "ok": not self.faults and not self.late and self.kills > 0,
        }
        return msgspec.json.encode(whole).decode()


@dataclass
class Hand:
    """A process that runs one workload after the other. It has a group of its own: its victims end with it."""

    pid: int
    tell: int
    hear: int
    text: bytes = b""


def serve(args: argparse.Namespace, hear: int, tell: int) -> None:
    with os.fdopen(hear, "rb") as requests:
        for line in requests:
            report = run_workload(int(line), point=args.point, patience=args.patience)
            os.write(tell, msgspec.json.encode(report) + b"\n")


@contextmanager
def hands(args: argparse.Namespace) -> Iterator[list[Hand]]:
    out: list[Hand] = []
    for _ in range(args.workers):
        their_hear, tell = os.pipe()
        hear, their_tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.setpgid(0, 0)
                for other in out:
                    os.close(other.tell)
                    os.close(other.hear)
                os.close(tell)
                os.close(hear)
                serve(args, their_hear, their_tell)
                code = 0
            finally:
                os._exit(code)
        os.close(their_hear)
        os.close(their_tell)
        out.append(Hand(pid, tell, hear))
    try:
        yield out
    finally:
        for hand in out:
            os.close(hand.tell)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(hand.pid, signal.SIGKILL)
            os.waitpid(hand.pid, 0)
            os.close(hand.hear)


def work(args: argparse.Namespace) -> Total:
    """Hand out seeds until enough were killed; what is under way then is still finished and counted."""
    total, started, told = Total(args.seed), time.monotonic(), 0.0
    limit = started + (args.limit or 60 + args.kills * 1.0)
    seeds = iter(range(args.seed, args.seed + 1_000_000))
    with hands(args) as free:
        busy: dict[int, Hand] = {}
        for hand in free:
            _ask(hand, next(seeds), busy)
        while busy:
            left = limit - time.monotonic()
            ready, _, _ = select.select(list(busy), [], [], max(0.0, min(left, PROGRESS_SECONDS)))
            if left <= 0:
                total.late = True
                print("out of time; what is under way is not counted", file=sys.stderr)
                break
            for fd in ready:
                hand = busy[fd]
                for report in _reports(hand):
                    del busy[fd]
                    total.add(report)
                    _complain(report, args)
                    done = total.kills >= args.kills or (args.stop and total.faults)
                    if not done:
                        _ask(hand, next(seeds), busy)
            told = _progress(total, args.kills, started, told)
    return total


def _ask(hand: Hand, seed: int, busy: dict[int, Hand]) -> None:
    os.write(hand.tell, b"%d\n" % seed)
    busy[hand.hear] = hand


def _reports(hand: Hand) -> Iterator[Report]:
    got = os.read(hand.hear, 1 << 16)
    if not got:
        raise SystemExit("a process that runs workloads ended by itself; its message is above")
    hand.text += got
    while b"\n" in hand.text:
        line, hand.text = hand.text.split(b"\n", 1)
        yield msgspec.json.decode(line, type=Report)


def _progress(total: Total, wanted: int, started: float, told: float) -> float:
    now = time.monotonic()
    is_terminal = sys.stderr.isatty()
    if now - told < (0.2 if is_terminal else PROGRESS_SECONDS):
        return told
    seconds = now - started
    text = f"{total.kills} of {wanted} kills, {total.workloads} workloads, {sum(total.faults.values())} faults"
    text += f", {total.kills / seconds * 60:,.0f} kills a minute"
    print(f"\r{text}\033[K" if is_terminal else text, end="" if is_terminal else "\n", file=sys.stderr, flush=True)
    return now


def _complain(report: Report, args: argparse.Namespace) -> None:
    if not report.faults:
        return
    extra = f" --point {args.point}" if args.point else ""
    extra += f" --plant {args.plant}" if args.plant else ""
    print(f"\nworkload {report.seed} after {report.kills} kills:", file=sys.stderr)
    for fault in report.faults[:20]:
        print(f"  {fault.kind}: {fault.text}", file=sys.stderr)
    print(f"  its files: {report.kept}", file=sys.stderr)
    print(f"  again: python -m tests.crash.main --kills 1 --workers 1 --seed {report.seed}{extra}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.main", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None, help="of the first workload; each next one is one more")
    parser.add_argument("--workers", type=int, default=2, help="workloads at a time")
    parser.add_argument("--point", default="", choices=("", *POINTS), help="kill nowhere else")
    parser.add_argument("--plant", default="", choices=("", *planted.BUGS), help="a bug that must be found")
    parser.add_argument("--stop", action="store_true", help="at the first workload that fails")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds without an end that mean: stuck")
    parser.add_argument("--limit", type=float, default=0.0, help="seconds for everything")
    args = parser.parse_args()
    args.seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
    if args.plant:
        planted.BUGS[args.plant]()
    started = time.monotonic()
    total = work(args)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    line = total.line(time.monotonic() - started)
    print(line)
    return 0 if msgspec.json.decode(line)["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
