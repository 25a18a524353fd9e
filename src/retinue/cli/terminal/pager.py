"""Long texts in the user's pager."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

from retinue.formats.safe_text import several_lines
from retinue.view.request_panel import RequestPanel, panel_text


def show_all(panel: RequestPanel) -> bool:
    """Everything of a request, as text."""
    return show_text("\n".join(panel_text(panel)))


def show_text(text: str) -> bool:
    """Show a text in the user's pager until that ends; False when there is none."""
    command = shlex.split(os.environ.get("PAGER", "")) or ["less"]
    if shutil.which(command[0]) is None:
        return False
    secure = {**os.environ, "LESSSECURE": "1"}  # it must not become a way to run commands
    try:
        process = subprocess.run(
            command, input=several_lines(text + "\n").encode(), env=secure, check=False
        )
    except OSError:
        return False
    return process.returncode == 0
