"""A small runtime that runs one shell command and is killed meanwhile. Arguments: folder command
[background]."""

import asyncio
import sys
from pathlib import Path

from tests.sandbox.bwrap_world import House


async def main() -> None:
    house = House(Path(sys.argv[1]))
    background = sys.argv[3:] == ["background"]
    await house.sh(sys.argv[2], house.caller("victim"), background=background, timeout_seconds=600)
    if background:
        await asyncio.Event().wait()


asyncio.run(main())
