"""Which dispatcher a setting names. Packages of engines are imported here, when one is used."""

from __future__ import annotations

from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from retinue.cluster.base import Dispatcher
from retinue.cluster.in_database import InDatabase
from retinue.errors import ConfigError
from retinue.formats.dispatch_address import DATABASE, PROCRASTINATE

MISSING = "{name} is not installed. Run: pip install 'retinue[{extra}]'"


def dispatcher_of(text: str, url: str) -> Dispatcher:
    """The dispatcher that `store.dispatch` names, for the database at `url`."""
    if text in ("", DATABASE):
        return InDatabase(url)
    if text == PROCRASTINATE:
        try:
            from retinue.cluster.procrastinate_jobs import ProcrastinateJobs
        except ImportError as error:
            raise ConfigError(MISSING.format(name="Procrastinate", extra="cluster")) from error
        return ProcrastinateJobs(url)
    try:
        from retinue.cluster.temporal_workflows import TemporalWorkflows
    except ImportError as error:
        raise ConfigError(MISSING.format(name="temporalio", extra="temporal")) from error
    parts = urlsplit(text)
    return TemporalWorkflows(
        parts.netloc, namespace=parts.path.strip("/") or "default", store=_name(url)
    )


def _name(url: str) -> str:
    """What distinguishes this database from others in one namespace of Temporal."""
    named = conninfo_to_dict(url)
    return str(named.get("dbname") or named.get("user") or "retinue")
