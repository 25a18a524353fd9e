"""Whatever a file holds, reading it ends in values or in `ConfigError`: thousands of damaged files,
and none is a crash."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from retinue.config import read_config
from retinue.config.layer_reader import read_layer
from retinue.config.layers import EffectiveSettings
from retinue.config.toml_edit import changed
from retinue.errors import ConfigError

TOML = b"""# a file with everything in it
profiles = ["openclaw", "phoenix", "meepo"]
[models]
default = "anthropic:claude-sonnet-4-5" # the good one
offered = ["openai:gpt-5.2"]
aliases = { fast = "openai:gpt-5-mini", "gpt-5.2" = "openai:gpt-5.2" }
[models.fallbacks]
strong = ["anthropic:claude-opus-4-6", "openai:gpt-5.2"]
[models.allow]
anthropic = ["claude-*"]
[models.urls]
openai = "http://127.0.0.1:9000/v1"
[models.keys]
openai = 'WORK_KEY'
[permissions]
mode = "acceptEdits"
allow = [
  "shell(git log*)", # looking
  "read",
]
deny = ["edit(**/.env)"]
[limits]
max_budget_usd = 1.5
max_turns = 40
timeout = "10m"
[sandbox]
network = false
env = ["CARGO_HOME"]
[mcp_servers.db]
command = "db-mcp"
args = ["--x", "y"]
env_vars = ["PGPASSWORD"]
[orchestrator]
max_concurrent_subtasks = 2
[families.fanout]
timeout_seconds = 60
[agent.subagents]
maxConcurrent = 2
[output]
color = "never"
[host]
idle_seconds = 1e1
"""
JSON5 = b"""{ // comment
  models: { default: 'openai:gpt-5.2', aliases: { fast: "openai:gpt-5-mini" } },
  agent: { subagents: { maxConcurrent: 3, tools: { deny: ["gateway"], allow: ["read"] } } },
  limits: { max_turns: 3, timeout: 1.5 },
}"""
PIECES = [
    b'"',
    b"'",
    b"[",
    b"]",
    b"{",
    b"}",
    b"=",
    b"\n",
    b".",
    b"#",
    b",",
    b"\x00",
    b"\xff",
    b"\xe2\x80\xae",
    b"\r",
]
PIECES += [
    b"nan",
    b"inf",
    b"-1",
    b"1e400",
    b"9" * 400,
    b"true",
    b'""',
    b"1979-05-27",
    b"[[models]]",
    b"[models]",
]
PIECES += [
    b"\xef\xbb\xbf",
    b"\\u0000",
    b'"""',
    b"[" * 300,
    b"{a=" * 300,
    b"sk-abcdefghijklmnop",
    b"0x",
    b"models.",
]
VALUES = [
    b"1",
    b"-1",
    b"nan",
    b"inf",
    b"1e400",
    b"9" * 400,
    b"true",
    b'""',
    b"1979-05-27",
    b"07:32:00",
    b"[]",
    b"[[]]",
]
VALUES += [
    b"{}",
    b"{a = 1}",
    b'["x", 1]',
    b'"\\u0000"',
    b"[[[[{}]]]]",
    b'"sk-abcdefghijklmnop"',
    b'"a" # c',
    b'"|"',
]


def retyped(text: bytes, chance: random.Random) -> bytes:
    """Still TOML, but with other values or keys: this reaches the checks behind the parser."""
    lines = text.split(b"\n")
    for _ in range(chance.randint(1, 3)):
        n = chance.randrange(len(lines))
        key, equals, _ = lines[n].partition(b" = ")
        if equals and b"[" not in key:
            lines[n] = (
                chance.choice([key, key, key, b"x", b'"a.b"', b"models.keys.x"])
                + equals
                + chance.choice(VALUES)
            )
        elif lines[n].startswith(b"["):
            lines[n] = chance.choice(
                [b"[x]", b"[models.x]", b"[[limits]]", b"[agent]", b"[families.x]", lines[n]]
            )
    return b"\n".join(lines)


def mutated(text: bytes, chance: random.Random) -> bytes:
    if b"[models]" in text and chance.random() < 0.5:
        return retyped(text, chance)
    data = bytearray(text)
    for _ in range(chance.randint(1, 4)):
        at, size = chance.randrange(len(data) + 1), chance.choice([1, 1, 3, 20, 200])
        match chance.randrange(6):
            case 0:
                del data[at : at + size]
            case 1:
                data[at:at] = chance.choice(PIECES)
            case 2:
                data[at : at + size] = chance.choice(PIECES)
            case 3 if at < len(data):
                data[at] = chance.randrange(256)
            case 4:
                lines = data.split(b"\n")
                chance.shuffle(lines) if chance.random() < 0.1 else lines.insert(
                    chance.randrange(len(lines)), chance.choice(lines)
                )
                data = bytearray(b"\n".join(lines))
            case _:
                words = data.split(b"=")
                n = chance.randrange(len(words))
                words[n] = b" " + chance.choice(PIECES) + b"\n" + words[n].partition(b"\n")[2]
                data = bytearray(b"=".join(words))
    return bytes(data)


def read(name: str, data: bytes) -> bool:
    """Whether the file could be parsed. Anything but `ConfigError` ends the test."""
    try:
        settings = EffectiveSettings(
            [read_layer(name, "project" if len(data) % 2 else "user", data)]
        )
        assert (
            settings.value is not None
        )  # what is wrong is left out, so that the rest can be shown
        settings.checked()
        assert settings.families is not None
        return True
    except ConfigError as error:
        text = str(error)
        assert text.strip() and all(line.strip() for line in text.splitlines())
        assert text.isprintable() or all(c.isprintable() or c == "\n" for c in text), ascii(text)
        assert "sk-abcdefghijklmnop" not in text
        return "Invalid" not in text and "is set twice" not in text


@pytest.mark.parametrize("part", range(5))
def test_a_damaged_file_is_refused_or_read_and_never_crashes(part: int) -> None:
    chance = random.Random(part)
    n_parsed = 0
    for _ in range(1_000):
        name, text = ("x.toml", TOML) if chance.random() < 0.8 else ("x.json5", JSON5)
        n_parsed += read(name, mutated(text, chance))
    assert 300 < n_parsed < 900  # else the damage is too weak or too strong to show anything


def test_the_files_that_are_damaged_are_good_by_themselves(tmp_path: Path) -> None:
    for name, text in (("x.toml", TOML), ("x.json5", JSON5)):
        (tmp_path / name).write_bytes(text)
        assert read_config(tmp_path / name).value.models.aliases["fast"] == "openai:gpt-5-mini"


def test_a_damaged_file_is_edited_to_something_that_reads_back_or_not_at_all() -> None:
    chance = random.Random(99)
    n_edited = 0
    for _ in range(500):
        try:
            text = mutated(TOML, chance).decode("utf-8")
            result = changed(
                text,
                chance.choice([("models", "default"), ("limits", "depth"), ("profiles",)]),
                "x",
            )
        except (UnicodeDecodeError, ConfigError):
            continue
        n_edited += 1
        comments = [line for line in text.splitlines() if line.lstrip().startswith("#")]
        assert all(line in result for line in comments)
    assert n_edited > 50
