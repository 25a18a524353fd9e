"""Skills: the rules for SKILL.md, where they are found, and the tool that reads them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from retinue.agent_files.skill_discovery import SHIPPED, find_skills
from retinue.agent_files.skill_tool import SkillTool
from retinue.agent_files.skills import Skill, read_skill, skills_prompt
from retinue.tools.base import ToolResult
from tests.agent_files.helpers import project, said
from tests.tools.builtin.file_tool_support import a_caller

GOOD = """---
name: pdf-tools
description: Take text and tables out of PDF files.
license: MIT
compatibility: Needs poppler
metadata:
  author: somebody
  version: 1.0
allowed-tools: Bash(pdftotext:*) Read
---
# PDF
Read references/forms.md for forms.
"""


def skill(folder: Path, text: str = GOOD, name: str = "pdf-tools", **files: str) -> Skill:
    place = folder / name
    (place / "references").mkdir(parents=True, exist_ok=True)
    (place / "SKILL.md").write_text(text)
    for file, content in files.items():
        (place / "references" / f"{file}.md").write_text(content)
    return read_skill(place)


def call(tool: SkillTool, **args: Any) -> ToolResult:
    answer = asyncio.run(tool.run(a_caller("/"), args))
    assert isinstance(answer, ToolResult)
    return answer


def test_a_skill_is_what_its_front_matter_says(tmp_path: Path) -> None:
    result = skill(tmp_path)
    assert result == Skill(
        name="pdf-tools",
        description="Take text and tables out of PDF files.",
        path=str(tmp_path / "pdf-tools"),
        license="MIT",
        compatibility="Needs poppler",
        metadata={"author": "somebody", "version": "1.0"},
        allowed_tools=("read", "shell(pdftotext *)"),
        body_tokens=11,
    )


@pytest.mark.parametrize(
    ("name", "ok"),
    [
        ("a", True),
        ("a-1-b", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("A", False),
        ("a--b", False),
        ("-a", False),
        ("a-", False),
        ("a_b", False),
        ("a b", False),
        ("../x", False),
    ],
)
def test_the_name_follows_the_rules_or_the_skill_is_broken(
    tmp_path: Path, name: str, ok: bool
) -> None:
    folder = name if ok else "folder"
    result = skill(tmp_path, f"---\nname: {name}\ndescription: d\n---\nx", folder)
    assert (not result.broken) is ok
    assert result.name == folder


@pytest.mark.parametrize(
    ("text", "severity", "message"),
    [
        ("---\nname: s\n---\nx", "error", "description is missing"),
        ("---\ndescription: d\n---\nx", "error", "name is missing"),
        ("---\nname: other\ndescription: d\n---\nx", "warning", "differs from its folder"),
        (
            f"---\nname: s\ndescription: {'d' * 1025}\n---\nx",
            "warning",
            "description has 1025 characters",
        ),
        (
            f"---\nname: s\ndescription: d\ncompatibility: {'c' * 501}\n---\nx",
            "warning",
            "compatibility has more than",
        ),
        (
            "---\nname: s\ndescription: d\nmetadata: [1]\n---\nx",
            "warning",
            "metadata must be keys and values",
        ),
        (
            "---\nname: s\ndescription: d\nmetadata: {a: [1]}\n---\nx",
            "warning",
            "metadata.a must be a text",
        ),
        (
            "---\nname: s\ndescription: d\nalowed-tools: x\n---\nx",
            "warning",
            "unknown key 'alowed-tools'",
        ),
        (
            "---\nname: s\ndescription: d\nallowed-tools: Frob\n---\nx",
            "warning",
            "unknown tool 'Frob'",
        ),
        ("---\nname: s\ndescription: d\n---\n", "warning", "no text below"),
        ("---\nname: s\ndescription: d\n---\n" + "x\n" * 600, "note", "the text has 600 lines"),
        ("no front matter", "error", "no front matter"),
        ("---\nname: [\n---\nx", "error", "invalid YAML"),
    ],
)
def test_what_is_against_the_rules_is_said(
    tmp_path: Path, text: str, severity: str, message: str
) -> None:
    result = skill(tmp_path, text, "s")
    assert any(message in m for _, m in said(result.complaints, severity)), result.complaints


def test_skills_are_found_nearest_first_and_the_shipped_one_last(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {"src/x": ""})
    home = project(tmp_path / "h", {})
    for place in (
        root / "src/.agents/skills",
        root / ".claude/skills",
        root / ".github/skills",
        root / ".gemini/skills",
        home / ".agents/skills",
    ):
        tag = place.parent.name.strip(".") + ("-user" if home in place.parents else "")
        for name in ("same", tag):
            skill(place, f"---\nname: {name}\ndescription: {tag}\n---\nx", name)
    skills = find_skills(root / "src", home, trusted=True)
    assert set(skills.skills) == {
        "same",
        "agents",
        "claude",
        "github",
        "gemini",
        "agents-user",
        "retinue",
    }
    assert skills.skills["same"].description == "agents"
    assert len(skills.shadowed) == 4
    assert skills.skills["agents-user"].scope == "user"
    assert skills.skills["retinue"].scope == "built-in"


def test_a_project_that_is_not_trusted_offers_no_skills(tmp_path: Path) -> None:
    root = project(tmp_path, {})
    skill(root / ".claude/skills")
    skills = find_skills(root)
    assert set(skills.skills) == {"retinue"}
    assert skills.complaints[0].message == "the project is not trusted, so its skills are ignored"


def test_a_skill_that_is_a_link_out_of_the_project_is_not_read(tmp_path: Path) -> None:
    skill(tmp_path / "out")
    root = project(tmp_path / "p", {".claude/skills/x": ""})
    (root / ".claude/skills/pdf-tools").symlink_to(tmp_path / "out/pdf-tools")
    skills = find_skills(root, trusted=True, shipped=False)
    assert skills.skills == {}
    assert "outside the project" in skills.complaints[0].message


def test_at_the_start_an_agent_is_told_names_and_purposes_only(tmp_path: Path) -> None:
    prompt = skills_prompt([skill(tmp_path)])
    assert prompt.endswith("- pdf-tools: Take text and tables out of PDF files.")
    assert "Read references" not in prompt
    assert skills_prompt([]) == ""


def test_the_tool_reads_the_text_and_then_a_file(tmp_path: Path) -> None:
    tool = SkillTool([skill(tmp_path, forms="About forms.")])
    body = call(tool, name="pdf-tools")
    assert body.text.startswith("# PDF\nRead references/forms.md")
    assert body.text.endswith("[files of this skill: references/forms.md]")
    assert call(tool, name="pdf-tools", file="references/forms.md").text == "About forms."
    assert (tool.restart, tool.risk, tool.summary({"name": "a", "file": "b"})) == (
        "pure",
        "read",
        "skill a b",
    )


@pytest.mark.parametrize(
    "file",
    [
        "../secret",
        "/etc/hostname",
        "references/../../secret",
        "link",
        "inner/secret",
        "nope",
        "a\0b",
        ".",
        "pipe",
    ],
)
def test_no_file_outside_of_the_skill_is_read(tmp_path: Path, file: str) -> None:
    import os

    (tmp_path / "secret").write_text("secret")
    result = skill(tmp_path)
    (Path(result.path) / "link").symlink_to(tmp_path / "secret")
    (Path(result.path) / "inner").symlink_to(tmp_path)
    os.mkfifo(Path(result.path) / "pipe")
    answer = call(SkillTool([result]), name="pdf-tools", file=file)
    assert answer.error
    assert "secret\n" not in answer.text
    assert "was not read" in answer.text


def test_bytes_that_are_no_text_are_an_error_with_their_size(tmp_path: Path) -> None:
    result = skill(tmp_path)
    (Path(result.path) / "x.bin").write_bytes(b"\xff\xd8\xff")
    answer = call(SkillTool([result]), name="pdf-tools", file="x.bin")
    assert "it is not text (3 bytes)" in answer.text


def test_an_unknown_skill_is_answered_with_those_there_are(tmp_path: Path) -> None:
    answer = call(SkillTool([skill(tmp_path)]), name="pdf-tool")
    assert answer == ToolResult(
        text="Unknown skill 'pdf-tool'; did you mean 'pdf-tools'? known: pdf-tools.",
        error=True,
    )
    assert call(SkillTool([]), nam="x").error


def test_the_skill_about_retinue_follows_the_rules_and_its_program_runs() -> None:
    skill = read_skill(SHIPPED / "retinue", "built-in")
    assert skill.complaints == ()
    text = (SHIPPED / "retinue" / "SKILL.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(program, "SKILL.md", "exec"), {})


def test_the_agent_in_the_skill_about_retinue_is_a_good_one(tmp_path: Path) -> None:
    from tests.agent_files.helpers import spec_of

    text = (SHIPPED / "retinue" / "SKILL.md").read_text()
    (example,) = re.findall(r"```markdown\n(.*?)```", text, re.DOTALL)
    spec = spec_of(tmp_path, example, "retinue", "reviewer.md")
    assert spec.complaints == ()
    assert spec.rules == ("allow: shell(git diff *)",)


def test_a_folder_that_became_a_link_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: s\ndescription: d\n---\nBody.\n")
    (folder / "more.txt").write_text("more")
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("SKILL.md", "more.txt", "secret.txt"):
        (outside / name).write_text("secret")
    tool = SkillTool([read_skill(folder)])
    folder.rename(tmp_path / "aside")
    folder.symlink_to(outside)
    for file in ("", "more.txt"):
        answer = asyncio.run(tool.run(a_caller("/"), {"name": "s", "file": file}))
        assert isinstance(answer, ToolResult) and answer.error
        assert "secret" not in answer.text


def test_a_file_that_may_not_be_read_is_not_shown_as_part_of_a_skill(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("---\nname: s\ndescription: d\n---\nBody.\n")
    (tmp_path / ".env").write_text("secret")
    tool = SkillTool([Skill(name="s", description="d", path=str(tmp_path))])
    who = a_caller(tmp_path, rules=("deny: read(**/.env)",))
    answer = asyncio.run(tool.run(who, {"name": "s", "file": ".env"}))
    assert isinstance(answer, ToolResult) and answer.error
    assert "secret" not in answer.text
