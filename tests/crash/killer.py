"""Lives and deaths of one workload: a warm process forks the victim, kills it, forks the next on
the same file.

Whoever forks here has no thread, no event loop and no open store: a fork of it is as good as a
fresh process, without the quarter of a second that the imports cost."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import select
import shutil
import signal
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash import checker
from tests.crash.checker import Fault
from tests.crash.plan import make
from tests.crash.workload import POINTS, Fuse, World

DELAY_MS = (1.0, 45.0)
NAMED_SHARE = 0.3
ANY = "anywhere"
"""Where somebody dies who is killed by the clock."""

MOST_KILLS, MOST_AT_POINT = 150, 12
"""Of one workload. The life after the last of them is left alone: it ends, or the workload is
stuck."""

STRETCH_EVERY, STRETCH = 30, 1.25
"""On a slow machine no life would get anywhere in so short a time: they grow longer."""

CPU_SHARE = 0.5
"""So many of those who die by the clock die by that of their own CPU: on a busy machine the other
clock runs on while they are not even scheduled. By the clock of the wall they also die while they
wait for the disk."""
KILLED = (-signal.SIGKILL, -signal.SIGPROF)

REACH = {"open": 1, "root": 2, "commit": 10, "model": 8, "tool": 8, "send": 2, "answer": 1}
"""How far into a life the named points are looked for."""


@dataclass
class Report:
    seed: int
    point: str = ""
    kills: int = 0
    lives: int = 0
    points: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    outcome_unknown: int = 0
    reruns: int = 0
    repeats: int = 0
    seconds: float = 0.0
    kept: str = ""
    """The folder, when something was wrong in it."""


def run_workload(seed: int, inside: str, *, point: str = "", patience: float = 30.0) -> Report:
    """Kill until it is done, then check. With `point` lives end there, as long as they get
    there."""
    started = time.monotonic()
    folder = Path(inside, f"workload-{seed}")
    folder.mkdir()
    plan = make(seed)
    world = World(plan, folder)
    report = Report(seed, point)
    r = random.Random(f"{seed} kills")
    gc.collect()
    gc.freeze()
    while True:
        fate = _fate(r, report.kills, point)
        report.lives += 1
        code, by_fuse = _life(world, fate, patience)
        if code not in KILLED:
            break
        report.kills += 1
        where = fate.fuse.point if by_fuse else ANY
        report.points[where] = report.points.get(where, 0) + 1
    gc.unfreeze()
    if code:
        text = (folder / "stderr").read_text(encoding="utf-8", errors="replace")
        report.faults.append(
            Fault("broken", f"life {report.lives} of the program failed ({code}):\n{text[-4_000:]}")
        )
    else:
        _look(folder, report, checker.check(folder, plan))
    report.seconds = time.monotonic() - started
    if report.faults:
        report.kept = str(folder)
    else:
        shutil.rmtree(folder)
    return report


def _look(folder: Path, report: Report, findings: checker.Findings) -> None:
    report.faults += findings.faults
    report.outcome_unknown, report.reruns = findings.outcome_unknown, findings.reruns
    report.repeats = findings.repeats
    lines = (folder / "stderr").read_text(encoding="utf-8", errors="replace").splitlines()
    # Model calls that the script lets fail are logged as warnings, as for any program.
    complaints = [line for line in lines if line and not line.startswith("a model call of run ")]
    if complaints:
        text = "\n".join(complaints)[-4_000:]
        report.faults.append(Fault("broken", f"the program complained:\n{text}"))


@dataclass(frozen=True)
class Fate:
    """Where a life ends, or after how many seconds of which clock; 0 of both: nobody ends it."""

    fuse: Fuse
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def _fate(r: random.Random, kills: int, point: str) -> Fate:
    """When and where the next life ends."""
    delay = r.uniform(*DELAY_MS) / 1000 * STRETCH ** (kills // STRETCH_EVERY)
    named = r.random() < NAMED_SHARE
    at = r.choice(POINTS)
    nth = r.randint(1, _reach(at))
    by_cpu = r.random() < CPU_SHARE
    if kills >= (MOST_AT_POINT if point else MOST_KILLS):
        return Fate(Fuse())
    if point:
        return Fate(Fuse(point, r.randint(1, _reach(point))))
    fuse, delay = (Fuse(at, nth), delay + DELAY_MS[1] / 1000) if named else (Fuse(), delay)
    return Fate(fuse, cpu_seconds=delay) if by_cpu else Fate(fuse, seconds=delay)


def _reach(point: str) -> int:
    return REACH[point.split("-")[0]]


def _life(world: World, fate: Fate, patience: float) -> tuple[int, bool]:
    """One fork. Returns its exit code (negative: a signal), and whether it died by its fuse."""
    alive, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(alive)
        _be(world, fate, patience)
    os.close(theirs)
    try:
        # The pipe closes with the process, however that ends.
        ready, _, _ = select.select([alive], [], [], fate.seconds or patience + 60)
        if not ready:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(alive)
    code = os.waitstatus_to_exitcode(status)
    if not ready and not fate.seconds:
        return 1, False
    return code, bool(ready) and code == -signal.SIGKILL


def _be(world: World, fate: Fate, patience: float) -> None:
    """The victim. It never returns into the code of the one who forked it."""
    code = 1
    try:
        out = os.open(world.folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        signal.setitimer(
            signal.ITIMER_PROF, fate.cpu_seconds
        )  # nobody handles its signal, so it kills like SIGKILL
        asyncio.run(world.live(fate.fuse, patience))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
