"""opencode's agents: permissions by tool and pattern, where the last match decides, and prompts
from files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain, islice
from typing import Any

from retinue.agent_files.agent_spec import AgentSpec, hint_at
from retinue.agent_files.dialects.spec_reader import PATHS, SpecReader, drop_denied
from retinue.agent_files.field_values import EFFORTS
from retinue.agent_files.fields import Fields
from retinue.agent_files.frontmatter import MAX_BYTES, kind_of
from retinue.agent_files.tool_alias_table import AGENT, CANONICAL, SHELL
from retinue.agent_files.tool_aliases import resolve, written

KEYS = (
    *(
        "description",
        "mode",
        "model",
        "variant",
        "temperature",
        "top_p",
        "steps",
        "maxSteps",
        "prompt",
        "permission",
    ),
    *("tools", "hidden", "disable", "disabled", "color", "name", "options"),
)
QUIET = ("top_p", "color", "options")
ACTIONS = ("allow", "ask", "deny")
MAX_RULES = 500
MAX_FILES = 20
_FILE = re.compile(r"\{file:([^{}\n]{1,500})\}")
_ENV = re.compile(r"\{env:([^{}\n]{1,200})\}")

Rule = tuple[str, str, str]


def read_opencode(reading: SpecReader) -> AgentSpec:
    fields = reading.fields
    fields.taken.add("name")
    variant = fields.text("variant")
    values = _permissions(reading)
    off = fields.flag("disable", "disabled")
    extra = {"variant": variant} if variant and variant not in EFFORTS else {}
    spec = reading.spec(
        KEYS,
        QUIET,
        name=reading.name(reading.stem),
        title=fields.text("name"),
        description=reading.described(needed=fields.data.get("mode") != "primary" and not off),
        mode=fields.choice(("primary", "subagent", "all"), "mode"),
        model=fields.model("model"),
        effort=variant if variant in EFFORTS else "",
        temperature=fields.number("temperature"),
        max_turns=fields.whole("steps", "maxSteps"),
        hidden=fields.flag("hidden"),
        disabled=off,
        instructions=_prompt(reading),
        **values,
    )
    spec.extra.update(extra)
    return spec


def _prompt(reading: SpecReader) -> str:
    """The body, or the key `prompt`, in which `{file:...}` is replaced by a file beneath the
    project."""
    fields = reading.fields
    prompt = fields.text("prompt")
    if reading.instructions and prompt:
        fields.complain("prompt", "there is text below the front matter, so prompt is ignored")
    text = reading.instructions or prompt

    room = MAX_BYTES

    def include(match: re.Match[str]) -> str:
        nonlocal room
        path = match[1].strip()
        try:
            text = reading.include(path)
            room -= len(text)
            if room < 0:
                raise OSError(f"all files together have more than {MAX_BYTES} characters")
            return text
        except OSError as error:
            fields.complain(
                "prompt", f"{{file:{path[:120]}}} was not read: {error.strerror or error}", "error"
            )
            return ""

    if _ENV.search(text):
        fields.complain(
            "prompt", "{env:...} is not replaced: files cannot read the environment", "note"
        )
    if len(_FILE.findall(prompt)) > MAX_FILES:
        fields.complain("prompt", f"prompt names more than {MAX_FILES} files", "error")
        return ""
    return _FILE.sub(include, text).strip() if "{file:" in text and text == prompt else text


def _permissions(reading: SpecReader) -> dict[str, Any]:
    fields = reading.fields
    rules = list(islice(chain(_from_tools(reading), _from_permission(reading)), MAX_RULES + 1))
    if len(rules) > MAX_RULES:
        fields.complain("permission", f"more than {MAX_RULES} permissions", "error")
    servers = [tool for _, _, tool in rules if tool.startswith("mcp__")]
    out: dict[str, Any] = {
        "tools": None,
        "deny": tuple(
            t for t in dict.fromkeys((*CANONICAL, *reading.known, *servers)) if _is_denied(rules, t)
        ),
        "rules": tuple(dict.fromkeys(_write(rule) for rule in rules)),
        "can_spawn": _can_spawn(rules),
    }
    at = next((n for n in range(len(rules) - 1, -1, -1) if rules[n][1:] == ("*", "*")), None)
    if at is not None and rules[at][0] == "deny":
        # Everything is denied but what is named after it: a list of tools, which also leaves out
        # those not known here.
        names = dict.fromkeys(tool for action, _, tool in rules[at:] if action != "deny")
        shell = SHELL if "shell" in names else ()
        out["tools"] = tuple(t for t in dict.fromkeys((*names, *shell)) if t not in out["deny"])
        if not out["tools"]:
            key = "permission" if fields.data.get("permission") else "tools"
            fields.complain(key, f"{key} resolves to no tool: every tool is disabled", "error")
    drop_denied(out, fields, "permission")
    return out


def _from_tools(reading: SpecReader) -> Iterator[Rule]:
    """The older form: tools that are turned on or off."""
    fields = reading.fields
    key, value = fields.raw("tools")
    if isinstance(value, list | str):
        names = fields.names("tools") or []
        value = {"*": False, **{name: True for name in names}}
        fields.complain(
            key,
            "tools is a list here, as in other programs; opencode uses names with true or false",
        )
    if value is None:
        return
    if not isinstance(value, dict):
        fields.wrong(key, "names of tools with true or false", value, "error")
        return
    if len(value) > MAX_RULES:
        fields.complain(key, f"{key} names more than {MAX_RULES} tools", "error")
        return
    for name, on in value.items():
        if not isinstance(on, bool):
            fields.complain(
                key, f"{name} must be true or false, not {kind_of(on)}; false is used", "error"
            )
        for tool in _tools(reading, name, "tools"):
            if on is not True:
                yield ("deny", "*", tool)
            elif name != "*":
                yield ("allow", "*", tool)


def _from_permission(reading: SpecReader) -> Iterator[Rule]:
    fields = reading.fields
    value = fields.raw("permission", "permissions")[1]
    if value is None:
        return
    if isinstance(value, str):
        value = {"*": value}
    if not isinstance(value, dict):
        fields.wrong("permission", "allow, ask or deny by tool", value, "error")
        return
    if len(value) > MAX_RULES:
        fields.complain("permission", f"permissions for more than {MAX_RULES} tools", "error")
        return
    for name, inner in value.items():
        patterns = inner if isinstance(inner, dict) else {"*": inner}
        for tool in _tools(reading, name, "permission"):
            for pattern, action in patterns.items():
                yield (_action(fields, f"{name}: {pattern}", action), pattern, tool)


def _action(fields: Fields, where: str, value: Any) -> str:
    if value in ACTIONS:
        return str(value)
    hint = hint_at(value, ACTIONS) if isinstance(value, str) else ""
    fields.complain(
        "permission", f"{where[:80]} must be allow, ask or deny; deny is used", "error", hint
    )
    return "deny"


def _tools(reading: SpecReader, name: str, key: str) -> Sequence[str]:
    if name == "*":
        return ("*",)
    fields = reading.fields
    tools = resolve(
        [name],
        "opencode",
        lambda message, severity, hint: fields.complain(key, message, severity, hint),
        known=reading.known,
    )
    # The tools that look after background commands go with the shell.
    return tuple(n for n in tools.names if n not in SHELL[1:] or n == name)


def _is_denied(rules: Sequence[Rule], tool: str) -> bool:
    """Whether nothing that can be asked of a tool is allowed: a tool that only ever refuses is not
    shown."""
    denied = False
    tool = "shell" if tool in SHELL else tool
    for action, pattern, name in rules:
        if fnmatchcase(tool, name):
            denied = action == "deny" if pattern == "*" else denied and action == "deny"
    return denied


def _can_spawn(rules: Sequence[Rule]) -> tuple[str, ...] | None:
    """Who may be started: those that are allowed after everyone was denied, or anyone (None)."""
    names: dict[str, None] | None = None
    for action, pattern, tool in rules:
        if not fnmatchcase(AGENT, tool):
            continue
        if pattern == "*":
            names = {} if action == "deny" else None
        elif names is not None:
            if action == "deny":
                names.pop(pattern, None)
            else:
                names[pattern] = None
    return None if not names else tuple(names)


def _write(rule: Rule) -> str:
    """Its `*` goes through folders, as ours does in two."""
    action, pattern, tool = rule
    if tool in PATHS:
        pattern = re.sub(r"\*+", "**", pattern)
    return written(action, tool, "" if pattern in ("*", "**") else pattern)
