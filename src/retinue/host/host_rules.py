"""Settings for all runs of a host: limits, retention, and whether commands run without a sandbox.
The command that started the host has put the user's settings into its environment."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from msgspec.structs import replace

from retinue.core.values import Limits, SpawnLimits
from retinue.errors import SandboxMissing
from retinue.option_types import Retention

log = logging.getLogger("retinue.host")


def rules_of(environ: Mapping[str, str]) -> Limits:
    """The outer limits of a host. How deep and how wide a tree may grow is said for each run, so
    here is the most that can be configured; what holds for all runs was put into the environment by
    the command that started us."""
    limits, calls = (
        SpawnLimits(depth=64, children=1_000_000, per_call=10_000),
        Limits().calls_per_turn,
    )
    if any(name.startswith("RETINUE_LIMITS_") for name in environ):
        from retinue.config.layer_reader import read_environment
        from retinue.config.layers import EffectiveSettings

        settings = EffectiveSettings([read_environment(environ)])
        limits, calls = (
            replace(limits, total=settings.get("limits.total")),
            settings.get("limits.calls_per_turn"),
        )
    return Limits(spawn_limits=limits, calls_per_turn=calls)


def retention_of(environ: Mapping[str, str]) -> Retention:
    """What is kept of runs that have ended: the user's own settings, as given by the command that
    started the host."""
    if not any(name.startswith("RETINUE_RETENTION_") for name in environ):
        return Retention()
    from retinue.config.layer_reader import read_environment
    from retinue.config.layers import EffectiveSettings

    settings = EffectiveSettings([read_environment(environ)])
    megabytes = settings.get("retention.size_mb")
    return Retention(
        age_seconds=settings.get("retention.age"),
        count=settings.get("retention.count"),
        size=None if megabytes is None else megabytes << 20,
    )


def dispatch_of(environ: Mapping[str, str]) -> str:
    """What gives the trees of a shared database to its workers."""
    from retinue.config.layer_reader import read_environment
    from retinue.config.layers import EffectiveSettings

    settings = EffectiveSettings([read_environment(environ)]).checked()
    return str(settings.get("store.dispatch"))


def is_bare() -> bool:
    """Whether commands run without a sandbox: there is none, and the user's own file says so."""
    from retinue.host.project_config import of_user
    from retinue.sandbox.bwrap import find_sandbox

    if of_user(os.environ, "sandbox", "unsafe_no_sandbox") is not True:
        return False
    try:
        find_sandbox()
    except SandboxMissing as error:
        log.warning("commands run without a sandbox, as configured: %s", error)
        return True
    return False
