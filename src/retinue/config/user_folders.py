"""The user's folders by the XDG variables, and which files belong to Retinue itself."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from retinue.formats.database_address import without_password
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.private_paths import TEMPORARY, Private
from retinue.sandbox.regular_file import read_small

MOST_NOTED = 1_000


def data_home(environ: Mapping[str, str]) -> str:
    return os.path.join(_base(environ, "XDG_DATA_HOME", ".local", "share"), "retinue")


def state_home(environ: Mapping[str, str]) -> str:
    return os.path.join(_base(environ, "XDG_STATE_HOME", ".local", "state"), "retinue")


def config_home(environ: Mapping[str, str]) -> str:
    return os.path.join(_base(environ, "XDG_CONFIG_HOME", ".config"), "retinue")


def cache_home(environ: Mapping[str, str]) -> str:
    return os.path.join(_base(environ, "XDG_CACHE_HOME", ".cache"), "retinue")


def beside_database(environ: Mapping[str, str], address: str) -> str:
    """The place on this machine of what other stores have beside their files. Another password is
    not another database."""
    name = hashlib.sha256(os.fsencode(without_password(address))).hexdigest()[:16]
    return os.path.join(data_home(environ), "databases", name, "retinue.db")


def socket_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The folders in which hosts may listen, beside those of their stores; the last one always can
    be made."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    own = (
        (os.path.join(runtime, "retinue"),)
        if os.path.isabs(runtime) and os.path.isdir(runtime)
        else ()
    )
    return (*own, os.path.join(tempfile.gettempdir(), f"retinue-{os.getuid()}"))


def private_places(environ: Mapping[str, str], store: str = "") -> Private:
    """What is ours on this machine. `store` is the file of the runtime that asks."""
    homes = (
        data_home(environ),
        state_home(environ),
        config_home(environ),
        cache_home(environ),
        *socket_folders(environ),
    )
    temporary = os.path.join(tempfile.gettempdir(), TEMPORARY)
    mine = os.path.abspath(store) if store else ""
    return Private(mine, (temporary, *noted_files(environ)), tuple(dict.fromkeys(homes)))


def note_file(environ: Mapping[str, str], path: str) -> None:
    """Remember a file of ours that lies somewhere else (a store, a file of tokens), so that every
    runtime hides it, whatever its project."""
    folder = Path(state_home(environ), "stores")
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        note = folder / hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        if not note.exists():
            write_file(note, os.fsencode(path), durable=False)


def noted_files(environ: Mapping[str, str]) -> Iterator[str]:
    """Those that are still there; what is noted of others is forgotten."""
    with suppress(OSError):
        for note in sorted(Path(state_home(environ), "stores").iterdir())[:MOST_NOTED]:
            with suppress(OSError):
                path = os.fsdecode(read_small(note))
                if os.path.isabs(path) and os.path.exists(path):
                    yield path
                else:
                    note.unlink()


def _base(environ: Mapping[str, str], variable: str, *below_home: str) -> str:
    base = environ.get(variable, "")
    if os.path.isabs(base):
        return base
    return os.path.join(environ.get("HOME") or os.path.expanduser("~"), *below_home)
