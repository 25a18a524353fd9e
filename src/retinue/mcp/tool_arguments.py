"""The arguments of each tool as values. What does not fit becomes a sentence that a model can act
on."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform

import msgspec
from msgspec import Meta

from retinue.formats.json_values import converted
from retinue.mcp.tool_table import MOST_SECONDS, MOST_TASKS, TOOLS

Text = Annotated[str, Meta(min_length=1)]
Words = Annotated[str, Meta(pattern=r"[^\s\x00-\x1f]")]
"""Something to do or to read."""
Ids = Annotated[tuple[Text, ...], Meta(min_length=1, max_length=100)]


class ToolProblem(Exception):
    """Something that the model which called the tool should read, and can do something about."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class CallArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the arguments of all tools."""


class DelegateArguments(CallArguments):
    tasks: Annotated[tuple[Words, ...], Meta(min_length=1, max_length=MOST_TASKS)]
    agent: str = ""
    model: str = ""
    budget_usd: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    max_tokens: Annotated[int, Meta(gt=0, le=1 << 53)] | None = None
    tools: tuple[Text, ...] | None = None
    directory: str = ""
    background: bool = False


class AgentsArguments(CallArguments):
    ids: Ids | None = None
    state: Literal["open", "all"] = "all"
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class ResultArguments(CallArguments):
    ids: Ids
    wait_seconds: Annotated[float, Meta(ge=0, le=MOST_SECONDS)] = float(MOST_SECONDS)


class SendArguments(CallArguments):
    id: Text
    text: Words
    interrupt: bool = False


class CancelArguments(CallArguments):
    ids: Ids
    reason: str = ""


class ForkArguments(CallArguments):
    id: Text
    task: Words
    background: bool = False


class AnswerArguments(CallArguments):
    id: Text
    question: str = ""
    text: str = ""
    allow: bool | None = None


T = TypeVar("T", bound=CallArguments)
_FIELDS = {tool["name"]: tool["inputSchema"] for tool in TOOLS}
_PATTERN = re.compile(r" matching regex '.*'")
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")


def read_arguments(tool: str, raw: Any, kind: type[T]) -> T:
    """The arguments of a call. Raises `ToolProblem`."""
    values = {} if raw is None else raw
    try:
        return converted(values, kind)
    except msgspec.ValidationError as error:
        raise ToolProblem(_sentence(tool, str(error))) from None


def _sentence(tool: str, problem: str) -> str:
    """What is wrong, where, and what the tool takes."""
    schema = _FIELDS[tool]
    place = _PLACE.search(problem)
    what = (
        _PATTERN.sub(" with words in it", _PLACE.sub("", problem))
        .replace("Object", "The call")
        .rstrip(".")
    )
    where = f"{place[1]}: " if place is not None and place[1] else ""
    required = schema.get("required", ())
    optional = [name for name in schema["properties"] if name not in required]
    takes = f"{tool} needs {', '.join(required)}" if required else f"{tool} needs nothing"
    return f"{where}{what}. {takes}, and can have {', '.join(optional)}. Nothing was done."
