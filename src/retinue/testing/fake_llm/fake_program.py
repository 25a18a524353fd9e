"""The fake provider as a program: prints its address, then answers until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from retinue.errors import ConfigError
from retinue.testing.fake_llm.fake_provider import DEFAULT, FakeLLM
from retinue.testing.fake_llm.fake_request import FakeSettings
from retinue.testing.fake_llm.script import load


async def _run(llm: FakeLLM) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with llm:
        sys.stdout.write(f"{llm.url}\n")
        sys.stdout.flush()
        await stopped.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the first line printed is the address."""
    parser = argparse.ArgumentParser(
        prog="fake_llm", description="A provider that answers from a script."
    )
    parser.add_argument("--port", type=int, default=0, help="0: any")
    parser.add_argument(
        "--latency", type=float, default=0.0, metavar="MS", help="before each answer"
    )
    parser.add_argument("--chunks", type=int, default=3, help="the number of writes of a stream")
    parser.add_argument("--script", type=Path, metavar="FILE.jsonl", help="one line per turn")
    options = parser.parse_args(argv)
    try:
        script = load(options.script) if options.script else DEFAULT
        settings = FakeSettings(keep=0)
        llm = FakeLLM(
            script,
            seconds=options.latency / 1000,
            chunks=options.chunks,
            port=options.port,
            settings=settings,
        )
        asyncio.run(_run(llm))
    except (ConfigError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0
