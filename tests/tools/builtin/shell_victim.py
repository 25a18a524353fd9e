"""A small runtime that runs one shell command and is killed meanwhile. Arguments: folder command
[background]."""

import asyncio
import sys
from pathlib import Path

from tests.sandbox.bwrap_world import SandboxedTools


async def main() -> None:
    tools = SandboxedTools(Path(sys.argv[1]))
    background = sys.argv[3:] == ["background"]
    await tools.sh(sys.argv[2], tools.caller("victim"), background=background, timeout_seconds=600)
    if background:
        await asyncio.Event().wait()


asyncio.run(main())
