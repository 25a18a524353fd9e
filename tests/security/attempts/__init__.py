"""Ways out of the sandbox, to be run inside it: `python -m attempts facts.json` in a directory that
holds this package.

`facts` comes from the test outside: where things are that must not be reached. An attempt that
returns something true has got out; one that raises was stopped."""

from . import controls, files, kernel, network, processes
from .base import ATTEMPTS

__all__ = ["ATTEMPTS", "controls", "files", "kernel", "network", "processes"]
