"""What is put in the place of a directory or a file while a tool works leads nowhere: generated
schedules, with and without root. A few hundred here; RETINUE_SWAPS asks for more (`make attack`:
12,000)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

N = int(os.environ.get("RETINUE_SWAPS", "400"))
PARTS = 4
NOBODY = 65534


def played(
    folder: Path, n: int, seed: int, *how: str, before: tuple[str, ...] = (), **env: str
) -> dict[str, Any]:
    command = [
        *before,
        sys.executable,
        "-m",
        "tests.security.swaps",
        str(folder),
        str(n),
        str(seed),
        *how,
    ]
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=850, env={**os.environ, **env}
    )
    assert process.returncode == 0, process.stderr[-3000:]
    texts: dict[str, Any] = json.loads(process.stdout)
    return texts


@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_of_swaps_reads_or_writes_a_byte_outside(tmp_path: Path, part: int) -> None:
    is_root = os.getuid() == 0
    mounts = (
        ("unshare", "-m", "--propagation", "private") if is_root and shutil.which("unshare") else ()
    )
    may = bool(mounts) and not subprocess.run([*mounts, "true"], capture_output=True).returncode
    output = played(
        tmp_path,
        N // PARTS,
        part,
        before=mounts if may else (),
        RETINUE_SWAP_MOUNTS="1" if may else "0",
    )
    assert output["escapes"] == []
    assert sum(output["swaps"].values()) >= N // PARTS
    assert N < 1000 * PARTS or all(
        n for kind, n in output["swaps"].items() if kind != "mount" or may
    )


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("setpriv") is None, reason="only root can be somebody else"
)
def test_nor_does_one_for_a_user_without_privileges(tmp_path: Path) -> None:
    folder = Path("/tmp", f"retinue-swaps-{os.getpid()}")  # one that this user can get to
    folder.mkdir(mode=0o700)
    try:
        os.chown(folder, NOBODY, NOBODY)
        before = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        if subprocess.run(
            [*before, sys.executable, "-c", "import retinue"], capture_output=True
        ).returncode:
            pytest.skip("this installation cannot be read by another user")
        output = played(folder, max(N // PARTS, 1), 1000, before=before, HOME=str(folder))
        assert output["uid"] == NOBODY
        assert output["escapes"] == []
    finally:
        shutil.rmtree(folder)


def test_the_schedules_find_out_who_goes_by_name(tmp_path: Path) -> None:
    output = played(tmp_path, 300, 1, "by-name")
    assert output["n_escapes"] > 3, output
