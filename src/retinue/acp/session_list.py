"""Lists the sessions of a project, found by the names of its runs."""

from __future__ import annotations

from datetime import UTC, datetime

from acp import schema

from retinue.acp.project_host import ProjectHost
from retinue.formats.safe_text import one_line
from retinue.host import requests

PREFIX = "acp-"
"""How the name of a session begins."""
PAGE = 50


async def sessions_in(host: ProjectHost, cwd: str, cursor: str) -> schema.ListSessionsResponse:
    """A page of sessions, those that were used last first."""
    sessions: dict[str, schema.SessionInfo] = {}
    before, is_last = cursor, False
    while len(sessions) < PAGE and not is_last:
        page = await host.ask(requests.ListRequest(limit=PAGE, before=before))
        before, is_last = page["next"], not page["next"]
        for line in page["runs"]:
            label = line["label"]
            if label.startswith(PREFIX) and label not in sessions:
                time = datetime.fromtimestamp(line["created_at"] / 1000, UTC).isoformat()
                sessions[label] = schema.SessionInfo(
                    session_id=label,
                    cwd=cwd,
                    title=one_line(line.get("task", ""), 80),
                    updated_at=time,
                )
    return schema.ListSessionsResponse(sessions=list(sessions.values()), next_cursor=before or None)
