"""Whatever way something comes into the host's log, no secret comes with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.security.canaries import Search, planted

SECRET = planted("LOG_TOKEN")
PROGRAM = """
import asyncio, gc, logging, sys, threading, warnings
from retinue.host.host_log import open_log
from retinue.core.redaction import Redactor

path, secret = sys.argv[1], sys.stdin.readline().strip()
redactor = Redactor()
open_log(path, redactor)
redactor.learn({"LOG_TOKEN": secret})
logging.getLogger("retinue.host").warning("the key is %s", secret)
logging.getLogger("some.library").error("asked https://example.org/?key=%s", secret)
warnings.warn(f"old key {secret}")
thread = threading.Thread(target=int, args=(secret,))
thread.start()
thread.join()

class Late:
    def __del__(self):
        raise ValueError(secret)

Late()

async def main():
    async def fails():
        raise ValueError(secret)

    task = asyncio.create_task(fails())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task
    gc.collect()

asyncio.run(main())
raise RuntimeError(f"it failed with {secret}")
"""


def test_no_way_into_the_log_lets_a_secret_through(tmp_path: Path) -> None:
    path = tmp_path / "host.log"
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        input=SECRET["LOG_TOKEN"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 1
    text, search = path.read_text(), Search(SECRET)
    search.look("the log", text + process.stdout + process.stderr)
    assert search.found == []
    for words in (
        "the key is",
        "example.org",
        "old key",
        "thread failed",
        "in __del__",
        "never retrieved",
        "it failed",
    ):
        assert words in text, (words, text)
    assert text.count("[redacted:LOG_TOKEN]") >= 7
