"""The tool that reads a skill."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from retinue.agent_files.agent_spec import hint_at
from retinue.agent_files.frontmatter import read_markdown
from retinue.agent_files.skills import FILE, Skill
from retinue.core.call_rules import READING
from retinue.core.redaction import Redactor
from retinue.core.values import Restart
from retinue.formats.safe_text import clean
from retinue.sandbox.bounded_read import MAX_BYTES, read_beneath, real, shown
from retinue.sandbox.directory_walk import walk_folders
from retinue.sandbox.open_beneath import open_real
from retinue.tools.base import Context, Returned, Risk, ToolResult
from retinue.tools.builtin.builtin_tool import Builtin, ToolArguments
from retinue.tools.file_rules import barred

MAX_LISTED = 200
MAX_DEEP = 4
PAGE = 65_536


class SkillArgs(ToolArguments, frozen=True, kw_only=True):
    name: str
    file: str = ""


class SkillTool(Builtin[SkillArgs]):
    """`skill(name, file="")`: the text of a skill, or a file beneath its folder."""

    name: ClassVar[str] = "skill"
    description: ClassVar[str] = (
        "Read a skill by its name before you do that kind of work. Then, if its text "
        "names a file, read that file by its path in the skill's folder."
    )
    Args: ClassVar[type[ToolArguments]] = SkillArgs
    restart: Restart = "pure"
    risk: Risk = "read"
    subject: str = "name"

    def __init__(self, skills: Mapping[str, Skill] | Sequence[Skill]) -> None:
        super().__init__()
        values = skills.values() if isinstance(skills, Mapping) else skills
        self.skills = {s.name: s for s in values}
        self._folders = {
            s.name: real(s.path) for s in values
        }  # a link that comes later is not followed

    def summary(self, args: dict[str, Any]) -> str:
        return " ".join(
            str(part) for part in ("skill", args.get("name", ""), args.get("file", "")) if part
        )

    async def call(self, context: Context, args: SkillArgs) -> Returned:
        skill = self.skills.get(args.name)
        if skill is None:
            hint = hint_at(args.name, self.skills)
            listing = ", ".join(self.skills) or "none"
            problem = (
                f"Unknown skill {args.name[:80]!r}; {hint + ' ' if hint else ''}known: {listing}."
            )
            return ToolResult(text=problem, error=True)
        folder = self._folders[skill.name]
        rule_on = barred(context, READING)
        if rule_on is not None and (rule := rule_on(str(real(folder / (args.file or FILE))))):
            return ToolResult(
                text=f"{args.file or FILE} of skill {skill.name} cannot be shown: rule {rule!r}.",
                error=True,
            )
        try:
            read = partial(_file, folder, args.file) if args.file else partial(_body, folder)
            return ToolResult(text=await asyncio.to_thread(read, context.redactor))
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            files = ", ".join(_files(folder)) or "none"
            text = (
                f"{args.file or FILE} of skill {skill.name} was not read: {problem}. Its files: "
                f"{files}."
            )
            return ToolResult(text=text, error=True)


def _body(folder: Path, redactor: Redactor) -> str:
    document = read_markdown(read_beneath(folder / FILE, folder), str(folder / FILE))
    files = _files(folder)
    tail = f"\n\n[files of this skill: {', '.join(files)}]" if files else ""
    return f"{_cut(redactor.clean(document.body))}{tail}"


def _file(folder: Path, name: str, redactor: Redactor) -> str:
    if os.path.isabs(name) or "\0" in name or ".." in Path(name).parts:
        raise ValueError("expected a path inside the skill's folder, without ..")
    raw = read_beneath(folder / name, folder, MAX_BYTES)
    if len(raw) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"it is not text ({len(raw)} bytes)") from None
    return _cut(redactor.clean(clean(text)))


def _cut(text: str) -> str:
    return (
        text
        if len(text) <= PAGE
        else f"{text[:PAGE]}\n[truncated: {len(text) - PAGE} of {len(text)} characters hidden]"
    )


def _files(folder: Path) -> list[str]:
    """The names of its files, from one open directory to the next."""
    try:
        top = open_real(str(folder))
    except OSError:
        return []
    out: list[str] = []
    try:
        for at, inner, others, _ in walk_folders(top):
            inner[:] = (
                sorted(f for f in inner if not f.startswith("."))
                if at.count("/") < MAX_DEEP
                else []
            )
            out += [
                os.path.normpath(f"{at}/{n}")
                for n in sorted(entry.name for entry in others)
                if not n.startswith(".") and n != FILE
            ]
            if len(out) >= MAX_LISTED:
                break
    except OSError:
        pass  # what was changed meanwhile is not listed
    finally:
        os.close(top)
    return sorted(shown(name) for name in out[:MAX_LISTED])
