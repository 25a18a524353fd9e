"""`python -m tests.crash.main --kills N`: kill a program N times, start it again each time, and
count what is missing.

The last line of the output is one line of JSON; the exit code is 1 when anything was lost, repeated
or broken."""

from __future__ import annotations

import argparse
import os
import secrets
import select
import shutil
import signal
import sys
import tempfile
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
MEMORY = "/dev/shm"


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

    def is_enough(self, args: argparse.Namespace) -> bool:
        if args.until and self.faults[args.until]:
            return True
        if args.each:
            return all(self.points[point] >= args.each for point in POINTS)
        return self.kills >= args.kills

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


class Wanted(msgspec.Struct):
    """A workload to run: its seed, and where all its lives end ("" for anywhere)."""

    seed: int
    point: str = ""


@dataclass
class Hand:
    """A process that runs one workload after the other. It has a group of its own: its victims end
    with it."""

    pid: int
    tell: int
    hear: int
    text: bytes = b""

    def ask(self, target: Wanted) -> None:
        os.write(self.tell, msgspec.json.encode(target) + b"\n")

    def reports(self) -> Iterator[Report]:
        reply = os.read(self.hear, 1 << 16)
        if not reply:
            raise SystemExit("a process that runs workloads ended by itself; its message is above")
        self.text += reply
        while b"\n" in self.text:
            line, self.text = self.text.split(b"\n", 1)
            yield msgspec.json.decode(line, type=Report)


def serve(args: argparse.Namespace, folders: list[str], hear: int, tell: int) -> None:
    with os.fdopen(hear, "rb") as requests:
        for line in requests:
            settings = msgspec.json.decode(line, type=Wanted)
            inside = folders[settings.seed % len(folders)]
            report = run_workload(
                settings.seed, inside, point=settings.point, patience=args.patience
            )
            os.write(tell, msgspec.json.encode(report) + b"\n")


@contextmanager
def places(args: argparse.Namespace, total: Total) -> Iterator[list[str]]:
    """In memory for half of the workloads, on the disk for the others: one is fast, the other has a
    real fsync. What failed is kept."""
    above = [MEMORY, ""] if os.access(MEMORY, os.W_OK) else [""]
    if args.folder:
        above = [args.folder]
    folders = [tempfile.mkdtemp(prefix="retinue-crash-", dir=name or None) for name in above]
    try:
        yield folders
    finally:
        if not total.faults:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def hands(args: argparse.Namespace, folders: list[str]) -> Iterator[list[Hand]]:
    out: list[Hand] = []
    try:
        for _ in range(args.workers):
            out.append(_hire(args, folders, out))
        yield out
    finally:
        for hand in out:
            os.close(hand.tell)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(hand.pid, signal.SIGKILL)
            os.waitpid(hand.pid, 0)
            os.close(hand.hear)


def _hire(args: argparse.Namespace, folders: list[str], others: list[Hand]) -> Hand:
    their_hear, tell = os.pipe()
    hear, their_tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            for fd in (tell, hear, *(fd for other in others for fd in (other.tell, other.hear))):
                os.close(fd)
            serve(args, folders, their_hear, their_tell)
            code = 0
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(code)
    os.close(their_hear)
    os.close(their_tell)
    return Hand(pid, tell, hear)


def work(args: argparse.Namespace) -> Total:
    """Hand out seeds until enough were killed; what is under way then is still finished and
    counted."""
    total, started, last_report = Total(args.seed), time.monotonic(), 0.0
    limit = started + (args.limit or 60 + args.kills + 20 * args.each)
    counts: Counter[str] = Counter()
    with places(args, total) as folders, hands(args, folders) as free:
        busy = {hand.hear: hand for hand in free}
        for hand in free:
            hand.ask(_next(args, counts, total))
        while busy:
            rest = limit - time.monotonic()
            ready, _, _ = select.select(list(busy), [], [], max(0.0, min(rest, PROGRESS_SECONDS)))
            if rest <= 0:
                total.late = True
                print("out of time; what is under way is not counted", file=sys.stderr)
                break
            for fd in ready:
                for report in busy[fd].reports():
                    total.add(report)
                    _complain(report, args)
                    if total.is_enough(args):
                        del busy[fd]
                    else:
                        busy[fd].ask(_next(args, counts, total))
            last_report = _progress(total, args, started, last_report)
    return total


def _next(args: argparse.Namespace, counts: Counter[str], total: Total) -> Wanted:
    """With `each`: at the point that was looked for, or hit, least."""
    point = args.point
    if args.each:
        point = min(POINTS, key=lambda p: (total.points[p] >= args.each, counts[p]))
    target = Wanted(args.seed + counts.total(), point)
    counts[point] += 1
    return target


def _progress(total: Total, args: argparse.Namespace, started: float, texts: float) -> float:
    now = time.monotonic()
    is_terminal = sys.stderr.isatty()
    if now - texts < (0.2 if is_terminal else PROGRESS_SECONDS):
        return texts
    n_points = sum(total.points[point] >= args.each for point in POINTS)
    aim = (
        f"{n_points} of {len(POINTS)} points"
        if args.each
        else f"{total.kills} of {args.kills} kills"
    )
    rate = total.kills / (now - started) * 60
    text = (
        f"{aim}, {total.workloads} workloads, {sum(total.faults.values())} faults, {rate:,.0f} "
        "kills a minute"
    )
    print(
        f"\r{text}\033[K" if is_terminal else text,
        end="" if is_terminal else "\n",
        file=sys.stderr,
        flush=True,
    )
    return now


def _complain(report: Report, args: argparse.Namespace) -> None:
    if not report.faults:
        return
    again = f"python -m tests.crash.main --kills 1 --workers 1 --seed {report.seed}"
    again += f" --point {report.point}" if report.point else ""
    again += f" --plant {args.plant}" if args.plant else ""
    print(f"\nworkload {report.seed} after {report.kills} kills:", file=sys.stderr)
    for fault in report.faults[:20]:
        print(f"  {fault.kind}: {fault.text}", file=sys.stderr)
    print(f"  its files: {report.kept}\n  again: {again}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.main", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument(
        "--each", type=int, default=0, help="instead: so many kills at each of the named points"
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="of the first workload; each next one is one more"
    )
    parser.add_argument("--workers", type=int, default=2, help="workloads at a time")
    parser.add_argument("--point", default="", choices=("", *POINTS), help="kill nowhere else")
    parser.add_argument(
        "--plant", default="", choices=("", *planted.BUGS), help="a bug that must be found"
    )
    parser.add_argument(
        "--until", default="", choices=("", *KINDS), help="stop once a fault of this kind was found"
    )
    parser.add_argument(
        "--patience", type=float, default=30.0, help="seconds without an end that mean: stuck"
    )
    parser.add_argument("--limit", type=float, default=0.0, help="seconds for everything")
    parser.add_argument(
        "--folder", default="", help="for the databases; else half are in memory, half on the disk"
    )
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
