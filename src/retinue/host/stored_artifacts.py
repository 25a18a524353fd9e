"""Artifacts of a store, by the first digits of their ids, without its host."""

from __future__ import annotations

from collections.abc import Callable

from retinue.errors import NotFound
from retinue.formats.safe_text import one_line
from retinue.host.project_paths import ProjectPaths
from retinue.store.artifact_files import Artifacts

LEAST = 6


def read_artifact(paths: ProjectPaths, id: str) -> bytes:
    """The whole of an artifact. `NotFound` when the digits name none, or several."""
    if paths.database:
        from retinue.store.postgres.postgres_reader import PostgresReader

        reader = PostgresReader(paths.database)
        return reader.artifact(_artifact_id(reader.artifact_names, id), 0, None)
    listing = Artifacts(f"{paths.store}.artifacts")

    def beginning(start: str) -> list[str]:
        return [name for name in listing.names() if name.startswith(start)]

    return listing.get(_artifact_id(beginning, id), 0, None)


def _artifact_id(beginning: Callable[[str], list[str]], id: str) -> str:
    digits = set("0123456789abcdef")
    if not LEAST <= len(id) <= 64 or set(id) - digits:
        id_line = one_line(id, 80)
        raise NotFound(
            f"{id_line!r} is not an artifact id. An id has 64 hexadecimal digits; at least "
            f"{LEAST} of them are needed."
        )
    matches = beginning(id)
    if len(matches) > 1:
        some = ", ".join(name[: len(id) + 4] for name in matches[:5])
        raise NotFound(f"{id!r} matches {len(matches)} artifacts ({some}). Use more of the id.")
    if not matches:
        raise NotFound(
            f"Artifact {id} not found in this store. An artifact is deleted with the last "
            "run that refers to it. For another store, pass --store."
        )
    return matches[0]
