"""Addresses to which A2A clients want notifications sent: kept in a private file next to the store,
because they may contain credentials. Without a store they are kept as long as the process."""

from __future__ import annotations

import os

import msgspec
from msgspec.structs import replace

from retinue.core.values import Value
from retinue.errors import ConfigError, Refused
from retinue.host.project_paths import private_directory
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.regular_file import read_small

MOST_BYTES = 64 << 20
MOST_OF_RUN = 16
MOST_OF_USER = 200
MOST = 2_000
"""With what a client may send of each, they fit into the file."""


class PushTarget(Value):
    """An address for the news of one run. `user` is whose run it is; `is_trusted`: an admin has
    named it, so that it may be in a private network. `is_done`: the end was sent."""

    run: str
    id: str
    url: str
    user: str = ""
    token: str = ""
    scheme: str = ""
    credentials: str = ""
    is_trusted: bool = False
    is_done: bool = False


class PushTargets:
    """All of them, by run and id. `store` is the path of the store, "" for none."""

    def __init__(self, store: str) -> None:
        self._path = os.path.join(f"{store}.plans", "push.json") if store else ""
        self._targets = self._load()

    def _load(self) -> dict[tuple[str, str], PushTarget]:
        if not self._path:
            return {}
        try:
            raw = read_small(self._path, MOST_BYTES)
            listed = msgspec.json.decode(raw, type=list[PushTarget])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"Cannot read {self._path} ({error}). Remove it to continue without notifications."
            ) from None
        return {(target.run, target.id): target for target in listed}

    def _save(self) -> None:
        if self._path:
            private_directory(os.path.dirname(self._path))
            write_file(self._path, msgspec.json.encode(list(self._targets.values())))

    def add(self, target: PushTarget) -> None:
        """A target of the same id is replaced. Raises `Refused` when there are too many."""
        key = (target.run, target.id)
        if key not in self._targets:
            self._check_room(target)
        self._targets[key] = target
        self._save()

    def _check_room(self, target: PushTarget) -> None:
        if len(self.of(target.run)) >= MOST_OF_RUN:
            raise Refused("push", f"A task takes {MOST_OF_RUN} notification addresses. Delete one.")
        n_mine = sum(one.user == target.user for one in self._targets.values())
        if n_mine >= MOST_OF_USER or len(self._targets) >= MOST:
            raise Refused(
                "push",
                f"All {MOST_OF_USER} notification addresses of a user, or all {MOST} of this host, "
                "are taken. Delete some.",
            )

    def find(self, run: str, id: str) -> PushTarget | None:
        return self._targets.get((run, id))

    def of(self, run: str) -> list[PushTarget]:
        return [target for target in self._targets.values() if target.run == run]

    def waiting(self) -> set[str]:
        """The runs whose ends were not sent yet."""
        return {target.run for target in self._targets.values() if not target.is_done}

    def remove(self, run: str, id: str) -> None:
        if self._targets.pop((run, id), None) is not None:
            self._save()

    def done(self, run: str) -> None:
        """The end of a run was sent to all."""
        for target in self.of(run):
            self._targets[run, target.id] = replace(target, is_done=True)
        self._save()

    def forget(self, run: str) -> None:
        """A run that is no longer there has no news."""
        for target in self.of(run):
            del self._targets[run, target.id]
        self._save()
