"""The process of a worker: drives trees of a database that several nodes share, and listens on no
address."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

from retinue.errors import ConfigError
from retinue.host.daemon import HostedStore
from retinue.host.host_log import keep_clean, own_redactor
from retinue.host.launch import KEPT
from retinue.host.project_paths import ProjectPaths


def need_database(paths: ProjectPaths, *, is_shared: bool = True) -> None:
    """Nodes share a database; a file belongs to one process."""
    if is_shared and not paths.database:
        raise ConfigError(
            "Several nodes share one PostgreSQL. Name it with --store, for example "
            "postgresql://USER@HOST/DATABASE."
        )


def work(
    paths: ProjectPaths,
    env: Mapping[str, str],
    say: Callable[[str], None],
    offers: tuple[str, ...] = (),
) -> None:
    """Drive trees until SIGINT or SIGTERM; then let go of them."""
    need_database(paths)
    redactor = own_redactor({})
    keep_clean(redactor)
    for name in env:
        if name not in KEPT:
            os.environ.pop(name, None)
    hosted = HostedStore(paths.root, paths.store, paths.socket, dict(env), redactor)
    hosted.database, hosted.is_shared, hosted.offers = paths.database, True, offers
    asyncio.run(hosted.work(lambda: say("Driving runs of this database. Press Ctrl-C to stop.")))
