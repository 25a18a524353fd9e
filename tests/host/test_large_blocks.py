"""What a host frees is the system's again."""

from __future__ import annotations

import subprocess
import sys

import pytest

HOLES = """
import sys
from retinue.host.large_blocks import return_large_blocks

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20

if sys.argv[1] == "yes":
    return_large_blocks()
block = bytearray(24 << 20)
del block
before, kept = resident(), []
blocks = []
for _ in range(40):
    blocks.append(bytearray(4 << 20))
    kept.append(bytearray(100_000))
for block in blocks:
    block[::4096] = b"x" * len(block[::4096])
del block, blocks
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="as glibc does it")
def test_large_blocks_that_were_freed_leave_no_holes() -> None:
    def grown(is_set: str) -> int:
        process = subprocess.run(
            [sys.executable, "-c", HOLES, is_set], capture_output=True, text=True, check=True
        )
        return int(process.stdout)

    assert grown("yes") < 20 < grown("no")
