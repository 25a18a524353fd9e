"""The editor's end of stdin and stdout. Nothing but the protocol is ever written there, whatever a
library prints."""

from __future__ import annotations

import asyncio
import os
import sys

from retinue.errors import ConfigError

MOST_BYTES = 64 << 20
"""Of one message, about."""


async def editor_pipes() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The editor's streams, as descriptors that no other code knows: what is printed goes to
    stderr, and what reads stdin finds nothing."""
    stdin, stdout = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MOST_BYTES)
    try:
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdin, "rb", buffering=0)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(stdout, "wb", buffering=0)
        )
    except ValueError:
        raise ConfigError(
            "`retinue acp` talks to an editor through pipes, and stdin or stdout is a file. "
            "Name the command in the configuration of your editor."
        ) from None
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)
