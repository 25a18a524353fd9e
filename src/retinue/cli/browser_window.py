"""Opens an address in the user's browser."""

from __future__ import annotations

import contextlib
import os
import webbrowser


def opened_in_browser(address: str, *, is_silent: bool = True) -> bool:
    """Whether a browser took the address. What it prints is not for the terminal, unless others
    write there meanwhile."""
    if not is_silent:
        with contextlib.suppress(webbrowser.Error, OSError):
            return webbrowser.open(address)
        return False
    with contextlib.suppress(webbrowser.Error, OSError), open(os.devnull, "w") as nowhere:
        saved = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            return webbrowser.open(address)
        finally:
            os.dup2(saved, 2)
            os.close(saved)
    return False
