"""Returns the memory of large blocks to the system when they are freed. glibc maps a block of 5 MB
by itself at first; once such a block was freed it takes the next ones from its heaps, where they
leave holes: after a few pictures a host kept four times what it used."""

from __future__ import annotations

import contextlib

M_MMAP_THRESHOLD = -3
LARGE = 1 << 20


def return_large_blocks() -> None:
    """For this process, from now on. Where there is no such setting nothing is done."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)
