"""A conversation with an agent: each message continues where the last one ended, and runs that end
in the background are shown between two messages."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, note
from retinue.cli.foreground_run import start
from retinue.cli.handover import RunDisplay, print_answer
from retinue.cli.mcp_prompts import prompt_task
from retinue.cli.terminal.prompt import HistoryPrompt, MessagePrompt
from retinue.cli.terminal.terminal_style import detect_style
from retinue.cli.terminal.watched_run import Signals, WatchedRun, WatchLeft
from retinue.cli.tui.chat_rows import ChatRows, ended_lines
from retinue.errors import HostGone, RetinueError
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.host.client import HostClient
from retinue.host.keys import carried
from retinue.host.launch import reach
from retinue.host.listing import RunListing
from retinue.host.planner import PlannedRun
from retinue.host.record import RecordReader
from retinue.host.server_prompts import has_server, typed_prompt, words_of
from retinue.tools.families.base import Family
from retinue.tree_record import TreeRecord
from retinue.view import format as view_format
from retinue.view import summary, totals

COMMANDS = {
    "/help": "list commands",
    "/agents": "list the agents in this conversation",
    "/show": "[RUN] show one run: its sub-agents and result",
    "/send": "RUN TEXT send a message, read at the next turn",
    "/steer": "RUN TEXT send a message that interrupts the current turn",
    "/approve": "[RUN] show what needs you, and answer it",
    "/cancel": "[RUN] stop a run and its sub-agents",
    "/cost": "show the cost of this conversation",
    "/subagents": "[on|off|toggle] allow the next message to start sub-agents",
    "/new": "start a new conversation",
    "/quit": "exit; background runs continue",
}
WITH_RUN = ("/show", "/send", "/steer", "/approve", "/cancel")


class ChatLoop:
    """One conversation. `run` is its last run, "" before the first message; `plan` makes what it
    begins with."""

    def __init__(
        self,
        context: CommandContext,
        plan: Callable[[], PlannedRun],
        terms: requests.RunTerms,
        run: str = "",
        *,
        can_answer: bool = False,
        families: Sequence[Family] = (),
    ) -> None:
        self._families, self._on = tuple(families), dict[str, bool]()
        self._context = context
        self._plan = plan
        self._terms = terms
        self.run = run
        self._can_answer = can_answer
        self._client: HostClient | None = None
        self._is_open = self._has_status = False
        self._after = 0
        self._background: set[str] = set()
        self._begun = [run] if run else []
        """The runs of this conversation, one for each message."""
        self.rows = ChatRows(context, self._roots)
        self.spent = totals.TreeSpending(0, 0.0)
        self.code = exit_codes.OK

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    @property
    def client(self) -> HostClient:
        if self._client is None:
            self._client = reach(self._context.prepare(), carried(self._context.environ))
        return self._client

    def talk(self, prompt: MessagePrompt) -> int:
        """Until the person leaves; returns the exit code."""
        is_leaving = False
        self._has_status = isinstance(prompt, HistoryPrompt)
        while True:
            try:
                for text in self.ended():
                    prompt.say(text)
                message_text = prompt.ask()
            except KeyboardInterrupt:
                if is_leaving:
                    return exit_codes.INTERRUPTED
                is_leaving = True
                prompt.say("Press Ctrl-C again, Ctrl-D or /quit to exit.")
                continue
            is_leaving = False
            if message_text is None or message_text.strip() in (
                "/quit",
                "/exit",
                "/q",
                "/qu",
                "/qui",
            ):
                return self.code
            try:
                self._take_line(message_text.strip(), prompt.say)
            except WatchLeft as departure:
                for line in departure.lines:
                    prompt.say(one_line(line))
                return departure.code
            except HostGone as error:
                self._client = None
                prompt.say(f"retinue: {error} Your next message continues the conversation.")
            except (RetinueError, OSError) as error:
                self.code = exit_codes.of_error(error)
                prompt.say(f"retinue: {exit_codes.sentence(error)}")

    def _take_line(self, line: str, say: Callable[[str], None]) -> None:
        """A command, by its name or the beginning of it, or a message: many begin with the path of
        a file."""
        head, _, rest = line.partition(" ")
        matches = [name for name in COMMANDS if name == head] or [
            name for name in COMMANDS if len(head) > 1 and name.startswith(head)
        ]
        if len(matches) == 1:
            self._command(matches[0], rest.strip(), say)
        elif (typed := typed_prompt(line)) is not None and has_server(
            (planned := self._plan()).plan, typed[0]
        ):
            self.message(prompt_task(self.client, planned, typed[0], words_of(typed[1])))
        elif matches or (line.startswith("/") and not rest and line.count("/") == 1):
            say(
                f"{head} matches {' and '.join(matches)}"
                if matches
                else f"Unknown command {head}. /help lists them."
            )
        elif line:
            self.message(line)

    # messages

    def message(self, text: str) -> None:
        """One message, to its end. The answer goes to stdout."""
        if self._is_open and self._send(text):
            pass
        elif self.run:
            self.run = self.client.ask(
                requests.ResumeRequest(run=self.run, task=text, terms=self._terms_for(text))
            )["run"]
        else:
            self.run = start(
                self._context, self.client, self._plan(), text, self._terms_for(text), RunDisplay()
            )
        if not self._is_open:
            self._after = 0
        self._is_open = True
        with Signals() as signals:
            watching = WatchedRun(
                self.client, self.run, signals, after=self._after, waits=self._can_answer
            )
            try:
                final, answer_shown = self._watch(watching)
            except WatchLeft as departure:
                if departure.code != exit_codes.OK:
                    raise
                self._after = watching.after
                note(
                    f"Run {view_format.short_id(self.run)} continues in the background. Your "
                    "next message goes to it."
                )
                return
        self._is_open = False
        self._report_end(final, watching.code, answer_shown)

    def _terms_for(self, text: str) -> requests.RunTerms:
        """A family that is off in chats is turned on by a message that asks for it, and stays
        on."""
        for family in self._families:
            switch = family.in_chat(text)
            if switch is not None and not self._on.get(family.name):
                self._on.setdefault(family.name, switch)
                self._on[family.name] |= switch
        return replace(self._terms, families=dict(self._on)) if self._on else self._terms

    def _switch(self, rest: str, say: Callable[[str], None]) -> None:
        """`/subagents`: for all families of the conversation, from the next message on."""
        is_on = all(
            self._on.get(f.name, f.in_chat("") is not False and f.settings.enabled)
            for f in self._families
        )
        switch = {
            "on": True,
            "enable": True,
            "off": False,
            "disable": False,
            "toggle": not is_on,
            "": is_on,
        }.get(rest)
        if switch is None or not self._families:
            say(
                "Use /subagents on, off or toggle."
                if self._families
                else "This conversation has no tool family."
            )
            return
        if rest:
            self._on = {f.name: switch for f in self._families}
        say(f"Sub-agents are {'on' if switch else 'off'}.")

    def _send(self, text: str) -> bool:
        """A message to the run that was left; False when it has ended meanwhile."""
        try:
            self.client.ask(requests.SendRequest(run=self.run, text=text))
        except HostGone:
            raise
        except RetinueError:
            self._is_open = False
        return self._is_open

    def _watch(self, watching: WatchedRun) -> tuple[TreeRecord, str | None]:
        """Until it has ended; and the answer, if it has been shown."""
        from retinue.cli.terminal import plain

        if self._context.is_quiet:
            while not isinstance(thing := watching.next(), TreeRecord):
                pass
            return thing, None
        how = detect_style(self._context.environ, sys.stderr, self._context.color)
        if not how.moves or self._context.is_reader:
            final = plain.watch(watching, self._context, can_answer=self._can_answer)
            return final, None
        from retinue.cli.terminal.answer_stream import watch_answer

        return watch_answer(watching, self._context, how, can_answer=self._can_answer)

    def _report_end(self, final: TreeRecord, code: int | None, answer_shown: str | None) -> None:
        """The answer, and how the message ended: on a terminal the prompt has what was spent."""
        self.spent = self.spent.plus(totals.spent(final))
        end = totals.ending(final.rows[0])
        text = end.text if end is not None else ""
        if end is not None and not text and end.data is not None:
            text = one_line(str(totals.plain(end.data)))
        if text and text != answer_shown:
            print_answer(self._context, text)
        state, stop = (end.state, end.stop) if end is not None else (totals.word(final.rows[0]), "")
        if end is not None and state != "completed":
            word, why = view_format.state_text(state), one_line(end.error or end.stop)
            what = why if why.startswith(word) else f"{word}: {why}"
            note(f"retinue: {what}. The conversation continues from here.")
        is_quiet = all(
            totals.has_ended(row) for row in final.rows
        )  # otherwise another run continues
        if is_quiet and (lacking := totals.missing(final.rows[0])):
            note(f"retinue: {one_line(lacking)}")
        # A person who cancels a turn does not want the chat to have failed.
        self.code = exit_codes.OK if code is not None else exit_codes.of_outcome(state, stop)
        if not self._has_status:
            self._context.say(summary.end_line(final))

    def ended(self) -> list[str]:
        """What has ended in the background since the last time: a line each."""
        try:
            with RunListing(self._context.paths) as listing:
                now = {run.id for run in listing.open_runs()}
            ids = self._background - now
            # A run that was left belongs to the background until it is over.
            ids -= {self.run} if not self._is_open else set()
            self._background, self._is_open = now, self._is_open and self.run in now
            with contextlib.ExitStack() as stack:
                record = stack.enter_context(RecordReader(self._context.paths)) if ids else None
                rows = [
                    row for id in ids if record is not None and (row := record.row(id)) is not None
                ]
        except (RetinueError, OSError):
            return []
        self.rows.refresh()
        roots = self._roots()
        return [
            line
            for row in sorted(rows, key=lambda row: row.spec.id)
            for line in ended_lines(row, is_own=row.spec.root in roots)
        ]

    def _roots(self) -> list[str]:
        """The first run of each tree of this conversation."""
        if self.run and self.run not in self._begun:
            self._begun.append(self.run)
        return self._begun

    # commands

    def _command(self, name: str, rest: str, say: Callable[[str], None]) -> None:
        if name == "/help":
            say("\n".join(f"{command:<11}{about}" for command, about in COMMANDS.items()))
            say("/SERVER:PROMPT [NAME=VALUE ...] sends a prompt of an MCP server.")
            say(
                "Enter sends, Alt-Enter starts a new line. Ctrl-C cancels the running "
                "turn; press twice to exit."
            )
        elif name == "/agents":
            self._agents(say)
        elif name == "/subagents":
            self._switch(rest.strip().lower(), say)
        elif name == "/cost":
            say(", ".join(self.spent.words))
        elif name == "/new":
            self.run, self._is_open, self._after = "", False, 0
            say("New conversation.")
        elif name in ("/show", "/approve"):
            self._call(name[1:], rest)
        elif name == "/cancel":
            states = self.client.ask(
                requests.CancelRequest(runs=(self._id(rest),), reason="/cancel")
            )["states"]
            say(
                "\n".join(
                    f"{view_format.short_id(id)} "
                    f"{view_format.state_text(view_format.shown_state(state))}"
                    for id, state in states.items()
                )
            )
        else:
            to, _, text = rest.partition(" ")
            if not to or not text.strip():
                say(f"Use {name} RUN TEXT.")
                return
            self.client.ask(
                requests.SendRequest(run=self._id(to), text=text.strip(), steer=name == "/steer")
            )
            say(f"Sent to {to}.")

    def _id(self, address: str) -> str:
        if not address:
            if not self.run:
                raise RetinueError("No run yet. Send a message first.")
            return self.run
        with RunListing(self._context.paths) as listing:
            below = (
                [n for n in listing.below(self._root(listing)) if address == n.label]
                if self.run
                else []
            )
            return below[-1].id if below else listing.resolve(address).id

    def _root(self, listing: RunListing) -> str:
        line = listing.line(self.run)
        return line.root if line is not None else self.run

    def _agents(self, say: Callable[[str], None]) -> None:
        if not self.run:
            say("No agents yet.")
            return
        with RunListing(self._context.paths) as listing:
            top = listing.line(self.run)
            lines = ([top] if top is not None else []) + listing.below(self._root(listing))
        for run in lines:
            task = one_line(run.task, 60)
            say(
                f"{'  ' * run.depth}{view_format.glyph(run.state)} {one_line(run.label, 40)} "
                f"{run.short} {view_format.state_text(run.state)}  "
                f"{'  '.join(view_format.amounts(run))}  {task}"
            )

    def _call(self, command: str, rest: str) -> None:
        """The command of the command line, for a run of this conversation."""
        from retinue.cli.command_list import cli

        where = ["--store", self._context.store] if self._context.store else []
        where += ["-C", self._context.cwd] if self._context.cwd else []
        address = self._id(shlex.split(rest)[0] if rest else "")
        cli.main(args=[*where, command, address], prog_name="retinue", standalone_mode=False)

    def complete(self, text: str) -> Iterator[tuple[str, str]]:
        """What can follow: a command, or a run for those that want one."""
        head, _, rest = text.partition(" ")
        if "\n" in text or not text.startswith("/"):
            return
        if " " not in text:
            yield from ((name, about) for name, about in COMMANDS.items() if name.startswith(head))
        elif head in WITH_RUN and " " not in rest:
            with (
                contextlib.suppress(RetinueError, OSError),
                RunListing(self._context.paths) as listing,
            ):
                lines = [
                    *(listing.below(self._root(listing)) if self.run else ()),
                    *listing.roots(limit=50),
                ]
                for run in lines:
                    if run.short.startswith(rest):
                        yield (
                            run.short,
                            f"{view_format.state_text(run.state)}: "
                            f"{one_line(run.label + ' ' + run.task, 60)}",
                        )

    @property
    def status(self) -> str:
        """What is below the prompt: who works in the background, the keys, and the cost."""
        spent = self.spent
        cost = (
            "offline"
            if spent.is_offline
            else view_format.money(spent.usd, is_bound=bool(spent.usd_estimated), is_short=True)
        )
        return self.rows.toolbar(cost if spent.tokens else "")


def history_of(context: CommandContext) -> str:
    """The file that keeps what was said at the prompt."""
    return os.path.join(context.prepare().plans, "chat.history")
