"""Whatever the bytes are, the answer is complaints: random bytes, random values for every key, and
mutated files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.agent_files.agent_spec import AgentSpec, Dialect, FileComplaint, FoundAgents
from retinue.agent_files.conversion import to_agents
from retinue.agent_files.definition_dialect import stem_of
from retinue.agent_files.dialects import claude, codex, copilot, cursor, opencode
from retinue.agent_files.dialects import gemini_cli as gemini
from retinue.agent_files.discovery import find_agents
from retinue.agent_files.lint import lint
from retinue.agent_files.loader import Loader
from retinue.agent_files.skills import read_skill
from retinue.core.call_rules import read_rule
from retinue.view.agent_list import render_lint, render_list, render_show
from tests.agent_files.helpers import WILD

DIALECTS: tuple[Dialect, ...] = (
    "retinue",
    "claude",
    "opencode",
    "codex",
    "copilot",
    "gemini",
    "cursor",
)
KEYS = sorted(
    {*claude.OURS, *opencode.KEYS, *codex.KEYS, *copilot.KEYS, *gemini.KEYS, *cursor.KEYS}
)
WORDS = [
    "Read",
    "Bash(git *)",
    "*",
    "mcp__x",
    "x/y",
    "Agent(a)",
    "deny",
    "allow",
    "plan",
    "{file:../x}",
    "-1",
    "1e9",
    "\ud7ff",
    "",
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=30)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*KEYS, *WORDS]), inner, max_size=4)
    ),
    max_leaves=12,
)
heads = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=12), values, max_size=8)
UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
relaxed = settings(max_examples=60, deadline=None, suppress_health_check=UNCHECKED)


def wrong(specs: list[AgentSpec], complaints: list[FileComplaint]) -> list[str]:
    """What everybody downstream does with a spec must work too; whatever does not."""
    out = []
    for spec in specs:
        if msgspec.json.decode(msgspec.json.encode(spec), type=AgentSpec) != spec:
            out.append(f"{spec} is another one behind JSON")
        for rule in spec.rules:
            read_rule(rule)
        if not spec.name:
            out.append(f"{spec} has no name")
        if not (
            spec.broken or spec.tools != () or "tools is empty" in str(spec.complaints) or spec.deny
        ):
            out.append(f"{spec} has no tools, and nobody is told")
    library = FoundAgents(
        agents={s.name: s for s in specs if not s.broken},
        broken=tuple(s for s in specs if s.broken),
        complaints=tuple(complaints),
    )
    render_lint(lint(library))
    render_list(library)
    for spec in specs:
        render_show(library, spec.name)
    agents = to_agents(library, families=["fanout"]).values()
    return [*out, *(f"{agent} has no name" for agent in agents if not agent.name)]


def read(
    folder: Path, name: str, raw: bytes, dialect: Dialect
) -> tuple[list[AgentSpec], list[FileComplaint]]:
    path = folder / name
    path.unlink(missing_ok=True)  # some file systems wait for the disk when a file is written over
    path.write_bytes(raw)
    loader = Loader("project", folder, trusted=False)
    if name.startswith("opencode.json"):
        return loader.opencode_json(path)
    return loader.file(path, dialect, stem_of(path, dialect, folder))


@pytest.mark.parametrize("name", ["x.md", "x.toml", "x.json", "config.toml", "opencode.jsonc"])
@relaxed
@given(raw=st.binary(max_size=300), dialect=st.sampled_from(DIALECTS), fenced=st.booleans())
def test_random_bytes_are_complaints(
    tmp_path: Path, name: str, raw: bytes, dialect: Dialect, fenced: bool
) -> None:
    assert (
        wrong(*read(tmp_path, name, b"---\n" + raw + b"\n---\nbody" if fenced else raw, dialect))
        == []
    )


@relaxed
@given(head=heads, dialect=st.sampled_from(DIALECTS))
def test_random_yaml_is_a_spec_or_complaints(
    tmp_path: Path, head: dict[str, Any], dialect: Dialect
) -> None:
    text = yaml.safe_dump(head, allow_unicode=True, sort_keys=False)
    assert (
        wrong(*read(tmp_path, "x.md", f"---\n{text}---\nbody".encode("utf-8", "replace"), dialect))
        == []
    )


@relaxed
@given(agents=st.dictionaries(st.text(max_size=8), heads | scalars, max_size=3))
def test_random_json_is_specs_or_complaints(tmp_path: Path, agents: dict[str, Any]) -> None:
    raw = msgspec.json.encode({"agent": agents})
    assert wrong(*read(tmp_path, "opencode.json", raw, "opencode")) == []
    library = find_agents(
        tmp_path, project_root=tmp_path, extra=[msgspec.json.encode(agents).decode()]
    )
    assert wrong(list(library.everything()), list(library.complaints)) == []


def mutations(seed: int, n: int) -> Iterator[tuple[str, bytes, Dialect]]:
    """Files from the wild with bytes changed, lines moved, doubled and dropped, and parts of each
    other."""
    chance = random.Random(seed)
    files = [
        (p.name, p.read_bytes(), p.parent.name) for p in sorted(WILD.rglob("*")) if p.is_file()
    ]
    pieces = [
        b"---",
        b"\t",
        b"\0",
        b"\xff",
        b": ",
        b"[",
        b"{",
        b"&a",
        b"*a",
        b"!!python/name:os",
        b"\r",
        b"|",
        b"'",
        b'"',
        b"- ",
    ]
    for _ in range(n):
        name, raw, dialect = chance.choice(files)
        for _ in range(chance.randint(1, 4)):
            lines = raw.split(b"\n")
            at = chance.randrange(len(lines))
            match chance.randrange(7):
                case 0:
                    raw = raw[: chance.randrange(len(raw) + 1)]
                case 1:
                    spot = chance.randrange(len(raw) + 1)
                    raw = raw[:spot] + chance.choice(pieces) + raw[spot:]
                case 2:
                    raw = b"\n".join([*lines[:at], *lines[at + 1 :]])
                case 3:
                    raw = b"\n".join([*lines[: at + 1], *lines[at:]])
                case 4:
                    other = chance.choice(files)[1].split(b"\n")
                    raw = b"\n".join([*lines[:at], chance.choice(other), *lines[at:]])
                case 5:
                    spot = chance.randrange(len(raw) + 1)
                    raw = raw[:spot] + bytes([chance.randrange(256)]) + raw[spot + 1 :]
                case _:
                    key, colon, _value = lines[at].partition(b":")
                    lines[at] = (
                        key
                        + colon
                        + b" "
                        + chance.choice(
                            [b"42", b"[]", b"{}", b"null", b"[[1]]", b"{a: [b]}", b"yes"]
                        )
                    )
                    raw = b"\n".join(lines)
        yield name, raw, chance.choice(DIALECTS) if chance.random() < 0.1 else dialect  # type: ignore[misc]


def test_five_thousand_mutated_files_are_specs_or_complaints(tmp_path: Path) -> None:
    n_specs = n_broken = n_complaints = 0
    for name, raw, dialect in mutations(20_261_116, 5_000):
        specs, complaints = read(tmp_path, name, raw, dialect)
        assert wrong(specs, complaints) == []
        n_specs += len(specs)
        n_broken += sum(s.broken for s in specs)
        n_complaints += len(complaints) + sum(len(s.complaints) for s in specs)
    assert n_specs > 4_000
    assert n_broken > 500
    assert n_complaints > 5_000


@relaxed
@given(raw=st.binary(max_size=200), head=heads)
def test_random_skills_are_skills_or_complaints(
    tmp_path: Path, raw: bytes, head: dict[str, Any]
) -> None:
    folder = tmp_path / "s"
    folder.mkdir(exist_ok=True)
    for text in (raw, f"---\n{yaml.safe_dump(head)}---\nx".encode("utf-8", "replace")):
        (folder / "SKILL.md").write_bytes(text)
        skill = read_skill(folder)
        assert skill.broken or skill.description
