"""`shell`, `shell_output` and `shell_stop`: run commands in the sandbox, in the foreground or in
the background."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from retinue.core.restarts import UNKNOWN
from retinue.core.values import Restart
from retinue.errors import Refused, SandboxMissing
from retinue.formats.fair_cut import clip
from retinue.formats.safe_text import clean
from retinue.tools.base import Context, Returned, Risk, ToolResult
from retinue.tools.builtin.builtin_tool import Builtin, ToolArguments
from retinue.tools.builtin.command_record import CommandRecord
from retinue.tools.builtin.live_command import LiveCommand
from retinue.tools.builtin.run_processes import Processes
from retinue.tools.builtin.shell_status import news_of, output_page, status_of, status_text
from retinue.tools.call_preview import CallPreview, CommandPreview

MAX_COMMAND = 100_000
BASH = "/bin/bash"

MayWrite = Callable[[Context], Awaitable[str] | str]


class ShellArguments(ToolArguments, frozen=True, kw_only=True):
    command: Annotated[str, Meta(description="command for bash")]
    timeout_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="the command is killed after this time")
    ] = 120
    background: Annotated[
        bool, Meta(description="return an id now; the command runs until the run ends")
    ] = False
    cwd: Annotated[str, Meta(description="a directory in the workspace; default: its root")] = ""


class ShellTool(Builtin[ShellArguments]):
    """`may_write` says why a run may not change its directory now, or "": then it is mounted
    read-only. `refusal` says the same without taking the directory."""

    name = "shell"
    description = (
        "Run a command with bash in a sandbox. The workspace is writable, the rest of "
        "the machine is read-only or missing, and there is no network unless it was "
        "granted. Processes end with the command. Files that other programs run or trust "
        "(.git/hooks, .mcp.json) are read-only, and new ones are removed. With "
        "background=true it returns now, with an id for shell_output and shell_stop; use "
        "that for servers and long commands."
    )
    Args = ShellArguments
    restart: Restart = "adoptable"
    risk: Risk = "execute"
    changes_files = True
    subject = "command"

    def __init__(
        self,
        processes: Processes,
        *,
        may_write: MayWrite | None = None,
        blocked_by: Callable[[Context], str] | None = None,
    ) -> None:
        super().__init__()
        self._processes, self._may_write, self._held = processes, may_write, blocked_by

    async def call(self, context: Context, args: ShellArguments) -> Returned:
        if context.again:
            adopted = self._adopt(context, args)
            if adopted is not None:
                return adopted
        try:
            text = _checked(args)
            reason = await self._reason(context)
            with self._processes.command(
                context, _bash(text), args.cwd, may_write=not reason
            ) as command:
                live = await self._processes.start(
                    context, command, text, background=args.background
                )
        except (Refused, SandboxMissing) as error:
            return ToolResult(text=str(error), error=True)
        first = f"[read-only: {reason}]\n" if reason else ""
        if args.background:
            return ToolResult(
                text=f"{first}Started in the background; id {live.record.id!r} for shell_output "
                "and shell_stop."
            )
        end = await live.wait(args.timeout_seconds)
        return status_text(live.record, end, first, args.timeout_seconds)

    async def _reason(self, context: Context) -> str:
        if (reason := _read_only(context)) or self._may_write is None:
            return reason
        answer = self._may_write(context)
        return await answer if inspect.isawaitable(answer) else answer

    async def look_ahead(self, context: Context, args: dict[str, Any]) -> CallPreview:
        """What would be enforced: the command that would be started, made up to its start."""
        try:
            value = msgspec.convert(args, ShellArguments)
            text = _checked(value)
            sandbox = self._processes.sandbox().name
            reason = _read_only(context) or (self._held(context) if self._held is not None else "")
            with self._processes.command(
                context, _bash(text), value.cwd, may_write=not reason
            ) as command:
                command_preview = CommandPreview(
                    command=context.redactor.clean(text),
                    directory=command.cwd,
                    sandbox="" if sandbox == "none" else sandbox,
                    network=command.network or sandbox == "none",
                    may_write=command.write,
                    read_only=reason,
                    stops_after_seconds=None if value.background else value.timeout_seconds,
                    is_background=value.background,
                )
        except (msgspec.ValidationError, UnicodeEncodeError, Refused, SandboxMissing) as error:
            return CallPreview(problem=clip(str(error), 500))
        return CallPreview(command=command_preview)

    def _adopt(self, context: Context, args: ShellArguments) -> ToolResult | None:
        """After a restart: the real outcome when it is on disk, unknown when it is not, None when
        it never started."""
        record = self._processes.record(context.key)
        if not record.folder.exists():
            return None
        self._processes.forsake(record)
        end = record.end
        if args.background:
            text = (
                f"The command was started in the background with id {record.id!r} and "
                "ended with the runtime, which restarted."
            )
            return ToolResult(text=f"{text} shell_output shows its output.", error=True)
        if end is not None:
            return status_text(record, end, "", args.timeout_seconds)
        return ToolResult(text=f"{UNKNOWN}\n{_written(record)}", error=True)

    def summary(self, args: dict[str, Any]) -> str:
        line = " ".join(str(args.get("command", "")).split())
        return f"$ {line if len(line) <= 100 else line[:99] + '…'}" + (
            " &" if args.get("background") is True else ""
        )


class OutputArguments(ToolArguments, frozen=True):
    id: str
    wait_seconds: Annotated[
        float, Meta(ge=0, le=300, description="wait this long for more output or the end")
    ] = 0
    offset: Annotated[int, Meta(ge=0, description="first byte to show")] = 0


class ShellOutputTool(Builtin[OutputArguments]):
    """Reads what a command has written, while it runs and afterwards."""

    name = "shell_output"
    description = "Read the output and the state of a shell command by its id, from a byte offset."
    Args = OutputArguments
    restart: Restart = "pure"
    risk: Risk = "read"

    def __init__(self, processes: Processes) -> None:
        super().__init__()
        self._processes = processes

    async def call(self, context: Context, args: OutputArguments) -> Returned:
        command = self._processes.find(context.run_id, args.id)
        if command is None:
            return ToolResult(text=_unknown(args.id), error=True)
        if isinstance(command, LiveCommand):
            await news_of(command, args.offset, args.wait_seconds)
        record = command.record if isinstance(command, LiveCommand) else command
        is_live = isinstance(command, LiveCommand) and not command.over.is_set()
        return ToolResult(
            text=f"{status_of(record, is_live=is_live)}\n{output_page(record, args.offset)}"
        )

    def summary(self, args: dict[str, Any]) -> str:
        return f"shell_output {args.get('id', '')}"


class StopArguments(ToolArguments, frozen=True):
    id: str


class ShellStopTool(Builtin[StopArguments]):
    """Kills a command of the same run with all its processes."""

    name = "shell_stop"
    description = "Stop a shell command that runs in the background, with all processes it started."
    Args = StopArguments
    restart: Restart = "pure"
    risk: Risk = "execute"

    def __init__(self, processes: Processes) -> None:
        super().__init__()
        self._processes = processes

    async def call(self, context: Context, args: StopArguments) -> Returned:
        command = self._processes.find(context.run_id, args.id)
        if command is None:
            return ToolResult(text=_unknown(args.id), error=True)
        if isinstance(command, LiveCommand) and command.running is not None:
            command.running.stop()
            await command.over.wait()
        record = command.record if isinstance(command, LiveCommand) else command
        return ToolResult(text=f"{status_of(record, is_live=False)}\n{record.shown()}")

    def summary(self, args: dict[str, Any]) -> str:
        return f"shell_stop {args.get('id', '')}"


def _read_only(context: Context) -> str:
    return "this run cannot write" if context.permissions.write == () else ""


def _checked(args: ShellArguments) -> str:
    text = clean(args.command)
    if not text.strip():
        raise Refused("command", "Invalid parameters: command is empty.")
    if "\0" in text:
        raise Refused(
            "command",
            "Invalid parameters: command contains a NUL character, which a shell cannot use.",
        )
    if len(text.encode()) > MAX_COMMAND:
        raise Refused(
            "command",
            f"Invalid parameters: command is longer than {MAX_COMMAND} bytes. Put it in a file.",
        )
    return text


def _bash(text: str) -> tuple[str, ...]:
    if os.path.exists(BASH):
        return (BASH, "--noprofile", "--norc", "-c", text)
    return ("/bin/sh", "-c", text)


def _written(record: CommandRecord) -> str:
    return (
        f"Its output until then:\n{record.shown()}"
        if record.total()
        else "It had written no output until then."
    )


def _unknown(id: str) -> str:
    return f"This run has no shell command with id {id!r}. The id is in the answer of shell."
