"""Changes several files together: reads and checks everything, writes drafts next to the files,
then renames them one by one. When one cannot, those before it are put back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from retinue.errors import NotFound, Refused
from retinue.sandbox.atomic_write import alone, sweep
from retinue.sandbox.file_location import FileLocation, locate
from retinue.sandbox.paths import Root
from retinue.tools.builtin.file_changes import FileChange, perform_changes
from retinue.tools.builtin.file_tool import FileCall
from retinue.tools.builtin.hunks import BadPatch, Hunk, apply_hunks
from retinue.tools.builtin.patch import Change
from retinue.tools.builtin.text_file import Text, is_binary, sha256, short_diff

Standing = Literal["before", "after", "unknown"]


@contextmanager
def spots(work: FileCall, paths: list[tuple[str, bool]]) -> Iterator[list[FileLocation]]:
    """The places of several files (with True: their directories are made), each named once, and no
    one else at them."""
    roots: dict[str, Root] = {}
    places: list[FileLocation] = []
    with ExitStack() as stack:
        try:
            for path, make in paths:
                top, rest = work.reach.find(path, "write")
                if top not in roots:
                    roots[top] = stack.enter_context(work.reach.open(top))
                place = locate(roots[top], rest, make=make, plan=work.planned is not None)
                place.path = path
                places.append(place)
                stack.callback(place.close)
            stack.enter_context(alone(places))
            for place in places:
                place.refresh()
            yield places
        except BaseException:
            for place in reversed(places):
                place.undo()
            raise


def apply_patch(work: FileCall, changes: list[Change]) -> str:
    """Apply a patch and say what it did."""
    paths = [(c.path, c.kind == "add") for c in changes] + [(c.to, True) for c in changes if c.to]
    for path, _ in paths:
        work.reach.find(path, "read")
    with spots(work, paths) as places:
        unshown = {
            place.path: why for place in places if (why := work.reach.unshown(place.where()))
        }
        _no_file_twice(places)
        targets = iter(places[len(changes) :])
        plan = [
            (c, place, next(targets) if c.to else None)
            for c, place in zip(changes, places, strict=False)
        ]
        if work.again:
            for place in places:
                sweep(place, work.key)
            standings = [_standing(*item) for item in plan]
            if "unknown" in standings:
                names = [c.path for c, s in zip(changes, standings, strict=True) if s == "unknown"]
                raise Refused("unknown", unknown(names))
            plan = [item for item, s in zip(plan, standings, strict=True) if s == "before"]
            if not plan:
                return (
                    "The patch was already applied before a restart interrupted the "
                    "call. Nothing was done now."
                )
        try:
            steps = [step for item in plan for step in _steps(work, *item)]
        except BadPatch:
            if unshown:
                path, why = next(iter(unshown.items()))
                raise BadPatch(
                    f"it does not match. The lines of {path} are not shown: {why}"
                ) from None
            raise
        perform_changes(work, steps)
        is_shown = not unshown
        return "\n".join(
            _report(work, change, step, is_shown)
            for (change, *_), step in _first_steps(plan, steps)
        )


def unknown(paths: list[str]) -> str:
    return (
        f"A restart interrupted this call, and it may have changed {', '.join(paths)}: "
        "the content is neither what the call expected nor what it would have written. "
        "Nothing was done now. Read the files before you repeat the call."
    )


def _no_file_twice(places: list[FileLocation]) -> None:
    """Two names can lead to one file, through a link."""
    paths: dict[tuple[int, int, str], str] = {}
    for place in places:
        where = os.fstat(place.dir_fd)
        other = paths.setdefault((where.st_dev, where.st_ino, place.name), place.path)
        if other is not place.path:
            raise BadPatch(
                f"{other} and {place.path} are the same file. Put all its hunks under one header"
            )


def _steps(
    work: FileCall, change: Change, spot: FileLocation, target: FileLocation | None
) -> list[FileChange]:
    if change.kind == "add":
        if spot.stat is not None:
            raise BadPatch(f"{change.path}: the patch adds it, but it already exists")
        return [FileChange(spot, None, change.content.encode("utf-8", "replace"))]
    if spot.stat is None:
        raise NotFound(f"{change.path}: file not found")
    before = spot.read()
    after = _patched(change, before, change.hunks, work.redactor.clean)
    if change.kind == "delete":
        if change.hunks and after:
            raise BadPatch(
                f"{change.path}: the patch deletes it, but it has more lines than the patch removes"
            )
        return [FileChange(spot, before, None)]
    if target is None:
        return [FileChange(spot, before, after)]
    if target.stat is not None:
        raise BadPatch(
            f"{change.to}: the patch moves {change.path} there, but a file already exists"
        )
    return [FileChange(target, None, after, like=spot.stat), FileChange(spot, before, None)]


def _patched(
    change: Change, before: bytes, hunks: list[Hunk], clean: Callable[[str], str] = str
) -> bytes:
    if not hunks:
        return before
    if is_binary(before):
        raise BadPatch(f"{change.path}: this is a binary file")
    source = Text.of(before)
    if not source.is_exact:
        raise BadPatch(
            f"{change.path}: it is not valid {source.encoding}, so it cannot be written "
            "back unchanged"
        )
    try:
        return source.encode(apply_hunks(source.text, hunks, clean))
    except BadPatch as error:
        raise BadPatch(f"{change.path}: {error}") from None


def _standing(change: Change, spot: FileLocation, target: FileLocation | None) -> Standing:
    """Whether a change was made by an earlier process, from what is there now."""
    if change.kind == "add":
        if spot.stat is None:
            return "before"
        return "after" if spot.read() == change.content.encode("utf-8", "replace") else "unknown"
    if change.kind == "delete":
        return "after" if spot.stat is None else "before"
    if target is not None:
        here, there = spot.stat is not None, target.stat is not None
        if here and there:
            return "unknown"
        if here:
            return "before"
        return "after" if there else "unknown"
    if spot.stat is None:
        return "unknown"
    data = spot.read()
    forward, back = (
        _fits(change, data, change.hunks),
        _fits(change, data, [h.reversed() for h in change.hunks]),
    )
    if forward == back:
        return "unknown"
    return "before" if forward else "after"


def _fits(change: Change, data: bytes, hunks: list[Hunk]) -> bool:
    try:
        _patched(change, data, hunks)
    except BadPatch:
        return False
    return True


def _first_steps(
    plan: list[tuple[Change, FileLocation, FileLocation | None]], steps: list[FileChange]
) -> Iterator[tuple[tuple[Change, FileLocation, FileLocation | None], FileChange]]:
    rest = iter(steps)
    for item in plan:
        yield item, next(rest)
        if item[2] is not None:
            next(rest)


def _report(work: FileCall, change: Change, step: FileChange, is_shown: bool) -> str:
    if step.after is None:
        return f"Deleted {change.path}"
    verb, name = ("Added", change.path) if change.kind == "add" else ("Changed", change.path)
    if change.to:
        verb, name = "Moved", f"{change.path} to {change.to}"
    line = f"{verb} {name}: {len(step.after)} bytes, sha256 {sha256(step.after)}"
    if change.kind == "add" or step.before is None or not is_shown:
        return line
    diff = short_diff(
        *(work.redactor.clean(Text.of(data).text) for data in (step.before, step.after))
    )
    return f"{line}\n{diff}" if diff else line
