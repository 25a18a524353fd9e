"""`retinue serve` in a process of its own, and clients with several tokens."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.private_home import SECONDS, PrivateHome

ADMIN = "admin-token-1234567890"
ALICE = "alice-token-1234567890"
BOB = "bob-token-123456789012"
TOKENS = f"{ADMIN}\n{ALICE} read,run alice\n{BOB} read,run bob\n"


@dataclass
class ServedProject:
    """A served project at an address."""

    home: PrivateHome
    address: str

    def ask(self, token: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the answer; JSON is read."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                status, answer = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, answer = error.code, error.read()
        return status, json.loads(answer) if answer[:1] in (b"{", b"[") else answer

    def start(self, token: str, task: str = "go", **fields: Any) -> str:
        """The id of a run that may start."""
        status, answer = self.ask(token, "POST", "/api/v1/runs", {"task": task, **fields})
        assert status == 201, answer
        return str(answer["run"])

    def text(self, run: str) -> str:
        """What a run has said at its end."""
        self.ask(ADMIN, "POST", "/api/v1/wait", {"runs": [run]})
        return str(self.ask(ADMIN, "GET", f"/api/v1/runs/{run}/outcome")[1]["outcome"]["text"])


@contextmanager
def serving(home: PrivateHome, tokens: Path, *options: str) -> Iterator[ServedProject]:
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    process = home.start("serve", "--port", "0", "--token-file", str(tokens), *options)
    assert process.stderr is not None
    try:
        text = ""
        while (match := re.search(r"http://[^ /]+", text)) is None:
            line = process.stderr.readline()
            assert line, text
            text += line
        yield ServedProject(home, match[0])
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS)
