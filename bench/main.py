"""`make bench`: every case in a fresh process, a line for each, one line of JSON at the end; kept
in bench/results."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    from bench.cases import CASES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"any of: {', '.join(CASES)}; all without")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="write the figures to bench/results")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(CASES[arguments.one]()))
        return 0
    figures: dict[str, object] = {}
    good = True
    for name in arguments.cases or CASES:
        process = subprocess.run(
            [sys.executable, "-m", "bench.main", "--one", name], capture_output=True, text=True
        )
        if process.returncode:
            print(process.stderr, file=sys.stderr)
            records: dict[str, object] = {
                "ok": False,
                "error": process.stderr.strip().splitlines()[-1:],
            }
        else:
            records = json.loads(process.stdout.strip().splitlines()[-1])
        figures[name] = records
        good = good and bool(records["ok"])
        print(
            f"{'ok ' if records['ok'] else 'BAD'} {name}: {json.dumps(records)}",
            file=sys.stderr,
            flush=True,
        )
    all_of_it = {
        "python": platform.python_version(),
        "when": time.strftime("%Y-%m-%d"),
        **figures,
        "ok": good,
    }
    if arguments.keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "latest.json").write_text(json.dumps(all_of_it, indent=1) + "\n")
    print(json.dumps(all_of_it))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
