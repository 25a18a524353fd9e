"""Changes several files together, or takes the changes back."""

from __future__ import annotations

import os
from dataclasses import dataclass

from retinue.errors import Refused, RetinueError
from retinue.sandbox.atomic_write import PendingWrite, remove
from retinue.sandbox.file_location import FileLocation
from retinue.tools.builtin.file_tool import FileCall


@dataclass(slots=True)
class FileChange:
    """One file and what it becomes: None means that it is not there. `like` is a file whose mode a
    new one gets. `unshown` is why its content may not be shown, noted where it is only planned."""

    spot: FileLocation
    before: bytes | None
    after: bytes | None
    like: os.stat_result | None = None
    unshown: str = ""


def perform_changes(work: FileCall, steps: list[FileChange]) -> None:
    """All steps, or none as far as the file system lets us. Of a call that is only looked at they
    are noted."""
    if work.planned is not None:
        for step in steps:
            step.unshown = work.reach.unshown(step.spot.where())
        work.planned.extend(steps)
        return
    drafts: list[PendingWrite | None] = []
    steps_done: list[FileChange] = []
    try:
        for step in steps:
            drafts.append(
                None
                if step.after is None
                else PendingWrite(step.spot, step.after, work.key, step.like)
            )
        if work.stop.is_set():
            raise Refused("cancelled", "the call was cancelled. Nothing was written")
        for step, draft in zip(steps, drafts, strict=True):
            if draft is None:
                remove(step.spot)
            else:
                draft.commit()
            steps_done.append(step)
    except BaseException as error:
        for draft in drafts[len(steps_done) :]:
            if draft is not None:
                draft.discard()
        unrestored = [s.spot.path for s in reversed(steps_done) if not _put_back(s)]
        if unrestored:
            raise Refused(
                "write", f"{error} These files could not be restored and are changed: {unrestored}"
            ) from error
        raise


def _put_back(step: FileChange) -> bool:
    try:
        step.spot.refresh()
        if step.before is None:
            remove(step.spot)
        else:
            PendingWrite(step.spot, step.before).commit()
    except (RetinueError, OSError):
        return False
    return True
