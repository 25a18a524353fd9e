"""The HTTP API against its own description, with requests that a machine makes up: `make api`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from retinue.server import RequestLimits
from tests.host.served import ADMIN, served

LIMITS = RequestLimits(burst=1e9, failures_burst=1e9)


def main(examples: str = "40") -> int:
    program = Path(sys.executable).parent / "schemathesis"
    with served(["Done."], limits=LIMITS) as api:
        api.finished()
        place = f"http://127.0.0.1:{api.port}"
        command = [
            str(program),
            "--config-file",
            str(Path(__file__).parent / "schemathesis.toml"),
            "run",
            f"{place}/api/v1/openapi.json",
            "--url",
            place,
            "-H",
            f"Authorization: Bearer {ADMIN}",
            "--max-examples",
            examples,
            "--request-timeout",
            "20",
            # It writes a file wherever it is told to.
            "--exclude-operation-id",
            "backup",
        ]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
