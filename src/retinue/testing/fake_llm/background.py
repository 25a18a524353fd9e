"""The fake provider on its own thread, for tests without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from retinue.testing.fake_llm.fake_provider import FakeLLM


@contextmanager
def served(llm: FakeLLM) -> Iterator[FakeLLM]:
    """Serves until the block is left. Its script runs on that thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-llm", daemon=True)
    thread.start()

    def do(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result()

    try:
        do(llm.start())
        try:
            yield llm
        finally:
            do(llm.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
