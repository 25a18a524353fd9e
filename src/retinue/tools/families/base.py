"""Shared by the families: building a family, reading arguments, and reporting wrong ones.

A family is settings and tools; it adds no rule to the machine. Its tools return actions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from retinue.core.answer_layout import Laid
from retinue.core.arguments import BadArguments, parse
from retinue.core.capabilities import allows
from retinue.core.effects import ChildOutcome
from retinue.core.spec import Actions, History, RunRequest
from retinue.core.values import NoticeTexts, Permissions, Restart, ToolSchema, Value
from retinue.errors import ConfigError
from retinue.formats.fair_cut import cut
from retinue.formats.safe_text import clean
from retinue.tools.base import Context, Returned, Risk, RuntimeReader, Tool, ToolResult
from retinue.tools.builtin.ask import AskTool

T = TypeVar("T")
ASK, READER = AskTool.name, "artifact"
COMPLAINT = 4_000
"""Characters of a complaint: it may quote what the model wrote."""


Writers = Literal["worktrees", "turns"]
TURNS = "Sub-agents that can edit files take turns."
COPIES = (
    "Several that can change files work in copies of the directory. When all have ended, their "
    "changes are merged in order, and you are told what is in conflict. What git ignores, such as "
    ".venv or node_modules, is not in a copy: a command that needs it has to set it up there. "
    "Outside of git they take turns."
)


def writers_note(writers: Writers) -> str:
    """What a tool that waits for its children says about those that change files."""
    return COPIES if writers == "worktrees" else TURNS


class FamilySettings(Value, forbid_unknown_fields=True):
    """The values of a family that can be set: a profile is nothing but other defaults for them.

    `enabled` is what a run gets that says nothing; a request can turn a family on or off. `guide`:
    whether the system prompt says when to delegate and when not to. `lend_ask`: whether children
    may ask questions of a person. `writers`: whether children that change files at the same time
    get copies of the directory, where that is possible, or take turns."""

    enabled: bool = True
    guide: bool = True
    lend_ask: bool = False
    writers: Writers = "worktrees"


class Family:
    """One dialect with its settings. `name` is also the name under which a request turns it on or
    off."""

    name: ClassVar[str]
    settings_type: ClassVar[type[FamilySettings]] = FamilySettings
    camels: ClassVar[bool] = False
    """Whether its document spells the settings like `maxConcurrent`."""
    profile: str = ""
    """The name by which it was asked for."""

    def __init__(self, settings: Any = None) -> None:
        self.settings = self.settings_type() if settings is None else settings

    def tools(self) -> Sequence[Tool]:
        """What the agent gets that has the family."""
        raise NotImplementedError

    def helper_tools(self) -> Sequence[Tool]:
        """What its children get beside the agent's other tools."""
        return ()

    def in_chat(self, text: str) -> bool | None:
        """Whether a message of a chat turns it on; None when it says nothing about that."""
        return None

    @property
    def guide(self) -> str:
        """A few sentences for the system prompt."""
        return ""

    @property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(t.schema.name for t in self.tools())


def helper_name(agent: str, family: str) -> str:
    """The agent whose runs a family starts for `agent`. A sub-agent that may nest starts others of
    its own kind."""
    return agent if agent.endswith(f".{family}") else f"{agent}.{family}"


class CallComplaint(Exception):
    """What was wrong with a call, in the family's words: an error result that the model can act
    on."""


class FamilyTool:
    """A tool of a family: `answer` does the work, a `CallComplaint` becomes an error result."""

    schema: ToolSchema
    restart: Restart = "pure"
    risk: Risk = "read"
    notices: NoticeTexts = NoticeTexts()
    invalid_prefix: str = "Invalid parameters"
    starts: str = ""
    """The family whose sub-agents it starts; "" for a tool that starts none."""
    dialect: str = ""
    """The family that it belongs to."""
    settings: Any = FamilySettings()
    """Those of its family."""
    is_fork: bool = False
    """Whether those it starts know all that was said."""

    def preview(self, agent: str, args: dict[str, Any]) -> tuple[RunRequest, ...]:
        """About which children a call of this agent would start, for the person who decides: as far
        as the arguments say. Nothing is checked."""
        if not self.starts:
            return ()
        tasks = args.get("tasks", [args])
        each = tasks if isinstance(tasks, list) else []
        return tuple(self._previewed(agent, one if isinstance(one, dict) else {}) for one in each)

    def _previewed(self, agent: str, args: dict[str, Any]) -> RunRequest:
        texts = {name: value for name, value in args.items() if isinstance(value, str)}
        task = next(
            (texts[name] for name in ("task", "prompt", "task_prompt") if name in texts), ""
        )
        if self.is_fork or texts.get("context") == "fork":
            return RunRequest(
                agent=agent, task=task, model=texts.get("model", ""), history=History(kind="fork")
            )
        return RunRequest(
            agent=helper_name(agent, self.starts), task=task, model=texts.get("model", "")
        )

    async def run(self, context: Context, args: dict[str, Any]) -> Returned:
        try:
            returned = await self.answer(context, args)
        except CallComplaint as complaint:
            return ToolResult(text=await _shortened(context, str(complaint)), error=True)
        if isinstance(returned, Laid):
            return ToolResult(text=await context.fit(returned))
        return (
            self._marked(context, returned)
            if isinstance(returned, Actions) and returned.spawns
            else returned
        )

    def _marked(self, context: Context, actions: Actions) -> Actions:
        """Every child knows its depth, and cannot ask questions unless it was given the tool."""
        level, lends = level_of(context, self) + 1, self.settings.lend_ask
        spawns = []
        for request in actions.spawns:
            is_ours = isinstance(reader_of(context).tools(request.agent).get(ASK), AskTool)
            access = self._reading(context, request)
            if is_ours and not lends:
                access = replace(access, deny=tuple(sorted({*access.deny, ASK})))
            options = {
                "dialect": self.dialect,
                "level": level,
                "may_ask": lends,
                "permissions": access,
            }
            spawns.append(replace(request, writers=self.settings.writers, **options))
        return replace(actions, spawns=tuple(spawns))

    def _reading(self, context: Context, request: RunRequest) -> Permissions:
        """An agent that may start others can read on where their results are cut."""
        access, theirs = request.permissions, reader_of(context).tools(request.agent)
        tools_given = [name for name in access.tools or () if name not in access.deny]
        starters = [name for name in tools_given if getattr(theirs.get(name), "starts", "")]
        permissions = context.row.permissions or context.spec.permissions
        if (
            not starters
            or READER not in theirs
            or READER in access.deny
            or not allows(permissions, READER)
        ):
            return access
        return replace(access, tools=tuple(sorted({*(access.tools or ()), READER})))

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned | Laid:
        raise NotImplementedError

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> str | Laid:
        raise ConfigError(f"{self.schema.name} joins no children")

    def read(self, args: dict[str, Any], type_: type[T], *objects: str) -> T:
        """The arguments as a value. `objects` are fields that models often write as a string of
        JSON."""
        args = {
            **args,
            **{f: self._unwrap(f, args[f]) for f in objects if isinstance(args.get(f), str)},
        }
        try:
            return msgspec.convert(args, type_)
        except msgspec.ValidationError as error:
            raise CallComplaint(f"{self.invalid_prefix}: {error}") from None

    def _unwrap(self, field: str, text: str) -> Any:
        try:
            (value,) = parse(f'{{"value": {text}}}').values()
            return value
        except (BadArguments, ValueError):
            raise CallComplaint(
                f"{self.invalid_prefix}: `{field}` is a string but not valid JSON"
            ) from None


def level_of(context: Context, tool: FamilyTool) -> int:
    """The depth of the calling run, counted from the run to which the family of `tool` was given,
    which is at 0."""
    request = context.spec.request
    return request.level if request.dialect == tool.dialect else 0


async def _shortened(context: Context, complaint: str) -> str:
    if len(complaint) <= COMPLAINT:
        return complaint
    text = context.redactor.clean(clean(complaint))
    return cut(text, COMPLAINT, await context.keep(text) if context.keep is not None else "")


def dialect_tools(context: Context) -> set[str]:
    """The tools of all families of the calling agent: a fork of it must not have them, unless it
    may nest."""
    mine = reader_of(context).tools(context.spec.request.agent)
    return {name for name, tool in mine.items() if isinstance(tool, FamilyTool)}


def reader_of(context: Context) -> RuntimeReader:
    """The reader of the calling run. Families need one; a context made by hand may have none."""
    if context.reader is None:
        raise ConfigError("this context has no view of the runtime")
    return context.reader


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def object_schema(properties: dict[str, Any], required: Iterable[str] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
