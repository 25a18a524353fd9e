"""`make attack`: every test that plays an attacker, with more policy trees and swaps than a landing
asks for; once as whoever runs it and, if that is root, once more without privileges. Ends with one
line of JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter

WHERE = (
    "tests/security",
    "tests/sandbox",
    "tests/tools",
    "tests/formats/test_database_address.py",
    "tests/formats/test_safe_text.py",
    "tests/core/test_permissions.py",
    "tests/core/test_capabilities.py",
    "tests/core/test_secret_streams.py",
    "tests/core/test_redaction.py",
    "tests/host/test_every_route.py",
    "tests/host/test_foreign_requests.py",
    "tests/host/test_on_behalf.py",
    "tests/models/test_call_ids.py",
    "tests/models/test_hostile_numbers.py",
    "tests/models/test_large_conversations.py",
    "tests/models/test_pictures.py",
    "tests/models/test_refused_keys.py",
    "tests/models/test_seal_checks.py",
    "tests/cli/test_attacks.py",
    "tests/cli/test_dead_key.py",
    "tests/cli/test_deciding.py",
    "tests/cli/test_host.py",
    "tests/cli/test_hostile_text.py",
    "tests/cli/test_never_unseen.py",
    "tests/cli/test_odd_files.py",
    "tests/cli/test_top.py",
    "tests/cli/test_trust.py",
    "tests/mcp/test_install.py",
    "tests/mcp/test_outsiders.py",
    "tests/testing/test_cassette_secrets.py",
)
PYTEST = ("-m", "pytest", "-q", "-n", "2", "--timeout", "900", "-p", "no:cacheprovider")
WITHOUT_ROOT = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""The same files, for a user who has an id of its own and not one capability."""


def counted(before: tuple[str, ...]) -> tuple[Counter[str], bool]:
    process = subprocess.Popen(
        [*before, sys.executable, *PYTEST, *WHERE], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    last = ""
    for line in process.stdout:
        sys.stdout.write(line)
        last = line if " in " in line and re.search(r"\d+ (passed|failed|error)", line) else last
    counts = Counter(
        {what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", last)}
    )
    return counts, process.wait() == 0 and counts["passed"] > 0


def main() -> int:
    started = time.monotonic()
    ways: dict[str, tuple[str, ...]] = {"root" if os.getuid() == 0 else "user": ()}
    why_not = ""
    if os.getuid() == 0:
        why_not = "unshare is missing" if shutil.which(WITHOUT_ROOT[0]) is None else ""
        if not why_not and subprocess.run([*WITHOUT_ROOT, "true"], capture_output=True).returncode:
            why_not = "no user namespace can be made here"
        if not why_not:
            ways["without_root"] = WITHOUT_ROOT
    figures: dict[str, object] = {"name": "attack"}
    is_ok = True
    for name, before in ways.items():
        sys.stdout.write(f"== {name.replace('_', ' ')}\n")
        counts, is_good = counted(before)
        figures[name], is_ok = dict(counts), is_ok and is_good
    if why_not:
        figures["not_tried_without_root"] = why_not
    figures |= {
        "policy_trees": int(os.environ.get("RETINUE_TREES", "5000")) * len(ways),
        "swap_schedules": int(os.environ.get("RETINUE_SWAPS", "400")) * len(ways),
        "seconds": round(time.monotonic() - started, 1),
        "ok": is_ok,
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
