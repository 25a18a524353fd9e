"""`python -m retinue`, and the program `retinue`: the command line.

Nothing is imported from where it is started, which may be an untrusted directory. (What Python
itself looks for there before this file is read cannot be kept from it here: `python -m` does, the
installed program does not.)"""

import os
import sys


def leave_out_here() -> None:
    """Take those places out of the search for modules that follow the current directory: the one
    that `python -m` puts in front, and relative or empty ones of PYTHONPATH, as
    `PYTHONPATH=$PYTHONPATH:/more` leaves."""
    try:
        here = os.getcwd()
    except OSError:
        here = ""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    named = {path for path in entries if os.path.isabs(path)}
    relative = {os.path.join(here, path).rstrip("/") for path in entries if not os.path.isabs(path)}
    follows = relative | ({here} if __name__ == "__main__" and not sys.flags.safe_path else set())
    sys.path[:] = [
        path for path in sys.path if os.path.isabs(path) and (path not in follows or path in named)
    ]


def open_closed_streams() -> None:
    """A standard stream that is closed leads to nowhere. Otherwise Python has none, and the next
    file that is opened, such as a store, gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def main() -> int:
    open_closed_streams()
    leave_out_here()
    from retinue.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
