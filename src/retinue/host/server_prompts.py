"""Prompts of MCP servers, as people use them: `server/name` or `/server:name`, with arguments as
`name=value`. What is left over is added to the prompt's text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from retinue.errors import ConfigError
from retinue.formats.suggestion import did_you_mean
from retinue.host.plan import Plan
from retinue.host.requests import PromptsRequest

if TYPE_CHECKING:
    from retinue.tools.mcp_client.server_content import ListedPrompt

_COMMAND = re.compile(r"/([^\s:/]+):(\S+)(?:\s+(.*))?", re.DOTALL)


def typed_prompt(line: str) -> tuple[str, str] | None:
    """`server/name` and the rest of a line that begins with `/server:name`; None for others."""
    match = _COMMAND.fullmatch(line.strip())
    return (f"{match[1]}/{match[2]}", match[3] or "") if match is not None else None


def has_server(plan: Plan, name: str) -> bool:
    """Whether `server/prompt` names a server of the plan."""
    servers = {server for source in plan.servers for server in source.servers}
    return name.partition("/")[0] in servers


def words_of(text: str) -> list[str]:
    """The words of a line, with quotes as in a shell where they are closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def listed_prompts(reply: Mapping[str, object]) -> list[ListedPrompt]:
    """The prompts in a host's reply."""
    from retinue.tools.mcp_client.server_content import ListedPrompt

    return msgspec.convert(reply["prompts"], list[ListedPrompt])


def prompt_request(
    prompts: Iterable[ListedPrompt],
    name: str,
    words: Sequence[str],
    plan: Plan,
    env: Mapping[str, str],
) -> tuple[PromptsRequest, str]:
    """The request for the text of a prompt, and the words that are no argument of it. Words that
    name no argument fill the first that is needed and has no value."""
    by_name = {f"{prompt.server}/{prompt.name}": prompt for prompt in prompts}
    prompt = by_name.get(name)
    if prompt is None:
        hint = did_you_mean(name, by_name) or (f" Known: {', '.join(by_name)}." if by_name else "")
        raise ConfigError(f"Unknown MCP prompt {name!r}.{hint or ' No server offers prompts.'}")
    keys = {argument.name for argument in prompt.arguments}
    values: dict[str, str] = {}
    rest: list[str] = []
    for word in words:
        key, sign, value = word.partition("=")
        if sign and key in keys:
            values[key] = value
        else:
            rest.append(word)
    text = " ".join(rest)
    missing = [a.name for a in prompt.arguments if a.required and not values.get(a.name)]
    if missing and text:
        values[missing.pop(0)], text = text, ""
    if missing:
        usage = " ".join(f"{key}=..." for key in missing)
        problem = f"MCP prompt {name} needs a value for {', '.join(missing)}"
        raise ConfigError(problem, f"Add {usage}.")
    request = PromptsRequest(
        plan=plan, env=dict(env), server=prompt.server, prompt=prompt.name, arguments=values
    )
    return request, text


def task_text(reply: Mapping[str, object], rest: str) -> str:
    """The task that a prompt becomes."""
    return "\n\n".join(filter(None, (str(reply["text"]), rest)))
