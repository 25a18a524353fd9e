"""The directory of a child when its parent names one: limited to what the parent may see."""

from __future__ import annotations

import os

from retinue.formats.fair_cut import clip
from retinue.sandbox.path_checks import strip
from retinue.tools.base import Context
from retinue.tools.families.base import CallComplaint


def directory(context: Context, request: str | None, where: str = "") -> str:
    """The directory of a child, without links: the parent's own, or one that exists inside it or
    inside a root that the parent may read. Touches the disk."""
    if not request:
        return context.cwd
    roots = [r for r in (context.cwd, *(context.permissions.read or ())) if r]
    name = repr(clip(request, 200))
    absent = f"{where}cwd {name} is not an existing directory. Name one, or omit it"
    try:
        path = (
            os.path.realpath(os.path.join(context.cwd, request))
            if context.cwd
            else os.path.normpath(request)
        )
    except ValueError:  # no path at all: it holds a NUL, or half a character
        raise CallComplaint(absent) from None
    if (roots or context.permissions.read is not None) and not inside(path, roots):
        names = ", ".join(dict.fromkeys(roots)) or "a directory you can read (there is none)"
        raise CallComplaint(
            f"{where}cwd {name} is outside your working directory. Use one inside {names}"
        )
    if not os.path.isdir(path):
        raise CallComplaint(absent)
    return path


def inside(path: str, roots: list[str] | tuple[str, ...]) -> bool:
    return any(strip(path, root) is not None for root in roots)
