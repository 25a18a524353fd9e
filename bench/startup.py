"""How long `retinue --version` and `retinue ps` take, beside a Python that does nothing: one line of JSON.

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
from collections.abc import Sequence
from pathlib import Path

ROUNDS = 15
LIMIT_MS = 150


def measure(command: Sequence[str], env: dict[str, str], cwd: str) -> float:
    """The median of several rounds, in milliseconds of processor time: on a busy machine the wall's clock tells of the
    others."""
    times = []
    for _ in range(ROUNDS + 1):
        start = _spent()
        subprocess.run(command, env=env, cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append((_spent() - start) * 1000)
    return statistics.median(times[1:])  # the first one may have written byte code


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        env = {n: v for n, v in os.environ.items() if n not in ("PYTHONDONTWRITEBYTECODE", "RETINUE_STORE")}
        env |= {"XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder, "XDG_RUNTIME_DIR": folder}
        source = str(Path(__file__).resolve().parent.parent / "src")
        env["PYTHONPATH"] = os.pathsep.join(p for p in (source, env.get("PYTHONPATH", "")) if p)
        _fill(env, folder)
        retinue = [sys.executable, "-m", "retinue"]
        nothing = measure([sys.executable, "-c", "pass"], env, folder)
        version = measure([*retinue, "--version"], env, folder)
        ps = measure([*retinue, "ps", "--all"], env, folder)
    told = {
        "bench": "startup",
        "pass_ms": round(nothing, 1),
        "version_ms": round(version, 1),
        "ps_ms": round(ps, 1),
        "version_ratio": round(version / nothing, 2),
        "ps_ratio": round(ps / nothing, 2),
        "limit_ms": LIMIT_MS,
        "within": max(version, ps) < LIMIT_MS,
    }
    print(json.dumps(told))
    return 0


def _fill(env: dict[str, str], folder: str) -> None:
    """A store with runs in it, so that `ps` has something to read."""
    code = (
        "import sys\n"
        "from retinue import Agent, run_sync\n"
        "from retinue.cli import places\n"
        "from retinue.testing import Scripted\n"
        "import os\n"
        "where = places.find(os.environ, cwd=sys.argv[1])\n"
        "places.prepare(where, is_project=True)\n"
        "for n in range(20):\n"
        "    run_sync(Agent('main', model=Scripted(['Done.'], name='m')), f'task {n}', store=where.store)\n"
    )
    subprocess.run([sys.executable, "-c", code, folder], env=env, cwd=folder, check=True)


if __name__ == "__main__":
    sys.exit(main())
