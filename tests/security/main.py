"""`make attack`: every test that plays an attacker, with more policy trees than a landing asks for."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

WHERE = ("tests/security", "tests/sandbox", "tests/tools", "tests/core/test_policy.py", "tests/core/test_permits.py")


class Tally:
    """Counts, by what became of each test."""

    def __init__(self) -> None:
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1


def main() -> int:
    tally, started = Tally(), time.monotonic()
    code = pytest.main(["-q", "-n", "2", "--timeout", "900", *WHERE], plugins=[tally])
    ok = code == 0 and tally.counts["failed"] == 0
    figures = {
        "name": "attack",
        **tally.counts,
        "policy_trees": int(os.environ.get("RETINUE_TREES", "20000")),
        "seconds": round(time.monotonic() - started, 1),
        "ok": ok,
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
