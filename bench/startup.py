"""How long `retinue --version` and `retinue ps` take, beside a Python that does nothing, and a
`retinue run` that has to start its host, or finds it: one line of JSON.

`python -m bench.startup`. Byte code is written once and used, as it is after an installation.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROUNDS = 15
COLD_ROUNDS = 7
LIMIT_MS = 150


class Times(NamedTuple):
    """Medians in milliseconds. On a busy machine the wall's clock tells of the others; the
    processor's does not."""

    wall: float
    cpu: float


def measure(command: Sequence[str], env: dict[str, str], cwd: str) -> Times:
    times = []
    for _ in range(ROUNDS + 1):
        wall, cpu = time.perf_counter(), _spent()
        subprocess.run(
            command,
            env=env,
            cwd=cwd,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        times.append(((time.perf_counter() - wall) * 1000, (_spent() - cpu) * 1000))
    del times[0]  # it may have written byte code
    walls, cpus = zip(*times, strict=True)
    return Times(statistics.median(walls), statistics.median(cpus))


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        env = {
            n: v
            for n, v in os.environ.items()
            if n not in ("PYTHONDONTWRITEBYTECODE", "RETINUE_STORE")
        }
        env |= {"XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder, "XDG_RUNTIME_DIR": folder}
        source = str(Path(__file__).resolve().parent.parent / "src")
        env["PYTHONPATH"] = os.pathsep.join(p for p in (source, env.get("PYTHONPATH", "")) if p)
        _fill(env, folder)
        retinue = [sys.executable, "-m", "retinue"]
        nothing = measure([sys.executable, "-c", "pass"], env, folder)
        version = measure([*retinue, "--version"], env, folder)
        ps = measure([*retinue, "ps", "--all"], env, folder)
        cold, warm = _runs(retinue, env, folder)
    text = {
        "bench": "startup",
        "pass_wall_ms": round(nothing.wall, 1),
        "pass_cpu_ms": round(nothing.cpu, 1),
        "version_wall_ms": round(version.wall, 1),
        "version_cpu_ms": round(version.cpu, 1),
        "ps_wall_ms": round(ps.wall, 1),
        "ps_cpu_ms": round(ps.cpu, 1),
        "run_cold_ms": round(cold, 1),
        "run_warm_ms": round(warm, 1),
        "version_ratio": round(version.cpu / nothing.cpu, 2),
        "ps_ratio": round(ps.cpu / nothing.cpu, 2),
        "limit_ms": LIMIT_MS,
        "within": max(version.wall, ps.wall) < LIMIT_MS,
        "within_cpu": max(version.cpu, ps.cpu) < LIMIT_MS,
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(text))
    return 0


def _runs(retinue: Sequence[str], env: dict[str, str], folder: str) -> tuple[float, float]:
    """Medians in milliseconds of a run without a host, and of the next one with it."""
    run = [*retinue, "run", "-p", "-q", "--model", "offline/explorer", "where is x?"]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(COLD_ROUNDS):
        for kind in times:
            since = time.perf_counter()
            subprocess.run(run, env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            kind.append((time.perf_counter() - since) * 1000)
        subprocess.run(
            [*retinue, "host", "stop"], env=env, cwd=folder, check=True, capture_output=True
        )
    return statistics.median(times[0]), statistics.median(times[1])


def _fill(env: dict[str, str], folder: str) -> None:
    """A store with runs in it, so that `ps` has something to read."""
    code = (
        "import sys\n"
        "from retinue import Agent, run_sync\n"
        "from retinue.host import project_paths\n"
        "from retinue.testing import Scripted\n"
        "import os\n"
        "paths = project_paths.find(os.environ, cwd=sys.argv[1])\n"
        "project_paths.prepare(os.environ, paths, is_project=True)\n"
        "for n in range(20):\n"
        "    run_sync(Agent('main', model=Scripted(['Done.'], name='m')), f'task {n}', "
        "store=paths.store)\n"
    )
    subprocess.run([sys.executable, "-c", code, folder], env=env, cwd=folder, check=True)


if __name__ == "__main__":
    sys.exit(main())
