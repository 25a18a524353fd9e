"""The HTTP API, OpenAI's APIs and A2A against their descriptions, with requests that a machine
makes up: `make api`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from retinue.server import RequestLimits
from tests.host.protocol_schema import protocol_schema
from tests.host.served import ADMIN, Served, served

LIMITS = RequestLimits(burst=1e9, failures_burst=1e9)


def main(examples: str = "40") -> int:
    with (
        served(lambda request: "Done.", limits=LIMITS) as api,
        tempfile.TemporaryDirectory() as folder,
    ):
        api.finished()
        protocols = Path(folder) / "protocols.json"
        protocols.write_text(json.dumps(protocol_schema("main")))
        own = f"http://127.0.0.1:{api.port}/api/v1/openapi.json"
        # A backup writes a file wherever it is told to.
        without = ("--exclude-operation-id", "backup")
        failed = _fuzzed(api, own, "schemathesis.toml", examples, *without)
        return _fuzzed(api, str(protocols), "schemathesis_protocols.toml", examples) or failed


def _fuzzed(api: Served, description: str, config: str, examples: str, *options: str) -> int:
    command = [
        str(Path(sys.executable).parent / "schemathesis"),
        "--config-file",
        str(Path(__file__).with_name(config)),
        "run",
        description,
        "--url",
        f"http://127.0.0.1:{api.port}",
        "-H",
        f"Authorization: Bearer {ADMIN}",
        "--max-examples",
        examples,
        "--request-timeout",
        "20",
        *options,
    ]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
