"""Finds skills and the folders they are in."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import field

from retinue.agent_files.agent_spec import FileComplaint, Scope
from retinue.agent_files.skills import FILE, Skill, read_skill
from retinue.config.project_root import folders_between
from retinue.config.project_root import project_root as root_of
from retinue.core.values import Value
from retinue.sandbox.bounded_read import is_beneath, real, shown

FOLDERS = (
    ".agents/skills",
    ".retinue/skills",
    ".claude/skills",
    ".github/skills",
    ".gemini/skills",
)
SHIPPED = Path(__file__).parent / "shipped_skills"
MAX_SKILLS = 500


class Skills(Value):
    """All skills that were found; `broken` ones are not offered."""

    skills: dict[str, Skill] = field(default_factory=dict)
    broken: tuple[Skill, ...] = ()
    shadowed: tuple[Skill, ...] = ()
    complaints: tuple[FileComplaint, ...] = ()


def find_skills(
    cwd: str | Path,
    home: str | Path | None = None,
    project_root: str | Path | None = None,
    trusted: bool = False,
    *,
    shipped: bool = True,
) -> Skills:
    """The skills of the project (nearest first, and only when it is trusted), of the user, and the
    shipped one."""
    here = real(cwd)
    root = real(project_root if project_root is not None else root_of(str(here), str(home or "")))
    if not is_beneath(here, root):
        root = here
    users = real(home) if home is not None else None
    skills: dict[str, Skill] = {}
    shadowed: list[Skill] = []
    complaints: list[FileComplaint] = []
    places: list[tuple[Path, Scope, Path | None]] = [
        (folder / name, "project", root)
        for folder in map(Path, folders_between(str(here), str(root)))
        if folder != users
        for name in FOLDERS
    ]
    places += [
        (users / name, "user", None)
        for name in FOLDERS
        if users is not None and name != ".github/skills"
    ]
    if shipped:
        places.append((SHIPPED, "built-in", None))
    for place, scope, top in places:
        if not os.path.isdir(place):
            continue
        if scope == "project" and not trusted:
            message = "the project is not trusted, so its skills are ignored"
            complaints.append(
                FileComplaint(
                    path=shown(place), message=message, hint="trust the project to use them"
                )
            )
            continue
        for skill in _in_folder(place, scope, top, complaints):
            first = skills.setdefault(skill.name, skill)
            if first is not skill and first.path != skill.path:
                shadowed.append(skill)
    return Skills(
        skills={name: s for name, s in sorted(skills.items()) if not s.broken},
        broken=tuple(s for s in skills.values() if s.broken),
        shadowed=tuple(shadowed),
        complaints=tuple(complaints),
    )


def _in_folder(
    place: Path, scope: Scope, top: Path | None, complaints: list[FileComplaint]
) -> Iterable[Skill]:
    if top is not None and not is_beneath(real(place), top):
        complaints.append(FileComplaint(path=shown(place), message="outside the project; not read"))
        return
    try:
        folders = sorted(
            p for p in place.iterdir() if os.path.isdir(p) and not p.name.startswith(".")
        )
    except OSError as error:
        complaints.append(FileComplaint(path=shown(place), message=f"not read: {error.strerror}"))
        return
    if len(folders) > MAX_SKILLS:
        complaints.append(
            FileComplaint(
                path=shown(place),
                message=f"more than {MAX_SKILLS} skills; others were not read",
            )
        )
    for folder in folders[:MAX_SKILLS]:
        if top is not None and not is_beneath(real(folder), top):
            complaints.append(
                FileComplaint(path=shown(folder), message="outside the project; not read")
            )
        elif shown(folder) != str(folder):
            complaints.append(
                FileComplaint(path=shown(folder), message="its name is not UTF-8; not read")
            )
        elif os.path.lexists(folder / FILE):
            yield read_skill(folder, scope)
