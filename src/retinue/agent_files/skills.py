"""Skills: folders with a SKILL.md. What each is for is said at the start, its text is read when it
is wanted, and its files when the text names them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import field

from retinue.agent_files.agent_spec import FileComplaint, Scope, tokens_in
from retinue.agent_files.fields import Fields
from retinue.agent_files.frontmatter import read_markdown
from retinue.agent_files.tool_alias_table import SHELL
from retinue.agent_files.tool_aliases import resolve, split_names
from retinue.agent_files.yaml_builder import AgentDocument
from retinue.core.values import Value
from retinue.formats.safe_text import one_line
from retinue.sandbox.bounded_read import read_beneath, real

FILE = "SKILL.md"
KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
MAX_NAME, MAX_DESCRIPTION, MAX_COMPATIBILITY = 64, 1024, 500
MAX_LINES, MAX_TOKENS = 500, 5_000

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Skill(Value):
    """One folder. `body_tokens` is what its text costs when it is read."""

    name: str
    description: str
    path: str
    license: str = ""
    compatibility: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    allowed_tools: tuple[str, ...] = ()
    body_tokens: int = 0
    scope: Scope = "project"
    complaints: tuple[FileComplaint, ...] = ()

    @property
    def broken(self) -> bool:
        return any(c.severity == "error" for c in self.complaints)


def read_skill(folder: str | Path, scope: Scope = "project") -> Skill:
    """One skill, with everything in its SKILL.md that does not follow the rules."""
    folder = Path(folder)
    path = str(folder / FILE)
    try:
        raw = read_beneath(folder / FILE, real(folder))
    except OSError as error:
        complaint = FileComplaint(
            path=path, message=f"not read: {error.strerror or error}", severity="error"
        )
        return Skill(
            name=folder.name, description="", path=str(folder), scope=scope, complaints=(complaint,)
        )
    document = read_markdown(raw, path)
    if not document.has_head and not document.broken:
        document.fail("no front matter", 1, "start with ---, and give it a name and a description")
    fields = Fields(document)
    name, description = fields.text("name"), fields.text("description")
    compatibility = fields.text("compatibility")
    if not document.broken:
        _check(fields, folder.name, name, description, compatibility)
    skill = Skill(
        name=name if _NAME.fullmatch(name) and len(name) <= MAX_NAME else folder.name,
        description=description[:MAX_DESCRIPTION],
        path=str(folder),
        license=fields.text("license"),
        compatibility=compatibility[:MAX_COMPATIBILITY],
        metadata=_metadata(fields),
        allowed_tools=_allowed(fields),
        body_tokens=tokens_in(document.body),
        scope=scope,
    )
    _check_body(document, skill)
    fields.rest(KEYS, ())
    return _with(skill, document)


def _with(skill: Skill, document: AgentDocument) -> Skill:
    from msgspec.structs import replace

    return replace(skill, complaints=tuple(document.complaints))


def _check(fields: Fields, folder: str, name: str, description: str, compatibility: str) -> None:
    if not name:
        fields.complain("name", "name is missing", "error", f"write name: {folder}")
    elif len(name) > MAX_NAME or not _NAME.fullmatch(name):
        rule = f"1 to {MAX_NAME} of a-z, 0-9 and -, no - at either end and no two in a row"
        fields.complain("name", f"the name {name[:80]!r} is not allowed: {rule}", "error")
    elif name != folder:
        fields.complain(
            "name",
            f"the name {name!r} differs from its folder, {folder!r}",
            "warning",
            "rename one of them",
        )
    if not description:
        fields.complain(
            "description",
            ("description is missing, so models cannot tell when to use this skill"),
            "error",
        )
    elif len(description) > MAX_DESCRIPTION:
        fields.complain(
            "description",
            f"description has {len(description)} characters; the limit is {MAX_DESCRIPTION}",
        )
    if len(compatibility) > MAX_COMPATIBILITY:
        fields.complain(
            "compatibility", f"compatibility has more than {MAX_COMPATIBILITY} characters"
        )


def _check_body(document: AgentDocument, skill: Skill) -> None:
    n_lines = document.body.count("\n") + 1
    if not document.broken and not document.body:
        document.complain("no text below the front matter", 0, "warning")
    if n_lines > MAX_LINES or skill.body_tokens > MAX_TOKENS:
        document.complain(
            f"the text has {n_lines} lines, about {skill.body_tokens} tokens; at most "
            f"{MAX_LINES} and {MAX_TOKENS} are recommended",
            0,
            "note",
            "move parts of it into references/",
        )


def _metadata(fields: Fields) -> dict[str, str]:
    out: dict[str, str] = {}
    for key, value in fields.mapping("metadata").items():
        if isinstance(value, str):
            out[key] = value
        elif isinstance(value, int | float):
            out[key] = str(value)
        else:
            fields.complain("metadata", f"metadata.{key[:60]} must be a text; it is ignored")
    return out


def _allowed(fields: Fields) -> tuple[str, ...]:
    """In our names; they are a request of the skill, not a permission."""
    value = fields.data.get("allowed-tools")
    entries = split_names(value) if isinstance(value, str) else fields.names("allowed-tools")
    fields.taken.add("allowed-tools")
    if not entries:
        return ()
    tools = resolve(entries, "claude", lambda m, s, h: fields.complain("allowed-tools", m, s, h))
    limited = {tool for tool, _ in tools.patterns}
    limited |= {*SHELL} if "shell" in limited else set()
    return (
        *(n for n in tools.names if n not in limited),
        *(f"{tool}({pattern})" for tool, pattern in tools.patterns),
    )


def skills_prompt(skills: Iterable[Skill]) -> str:
    """What an agent reads at the start: the name of each skill and what it is for."""
    lines = [f"- {s.name}: {_one_line(s.description)}" for s in skills]
    if not lines:
        return ""
    head = (
        "Skills: instructions for particular kinds of work. Before such work, read the "
        "skill with the tool `skill`."
    )
    return "\n".join((head, *lines))


def _one_line(text: str) -> str:
    return one_line(text)
