"""Parts of the system that a test cannot do without. What CI can have, it must have: missing, it is
a failure there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

FIXES = {
    "bwrap": "install the package bubblewrap",
    "rg": "install the package ripgrep",
    "node": "install Node.js",
    "npm": "install npm",
    "git": "install git",
    "tmux": "install tmux",
    "chromium": "install chromium",
}


def needs(*programs: str) -> Callable[[Any], Any]:
    """Skip a test where a program is missing, and say which; with CI=true it runs, and fails by
    itself."""
    missing = [p for p in programs if shutil.which(p) is None]
    reason = "; ".join(f"{p} is missing, so this was not tested: {FIXES[p]}" for p in missing)
    return pytest.mark.skipif(
        bool(missing) and os.environ.get("CI") != "true", reason=reason or "nothing is missing"
    )
