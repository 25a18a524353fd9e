"""`retinue approve`: answer what runs ask."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
from msgspec.structs import replace

from retinue.cli import exit_codes as exits
from retinue.cli.context import CommandContext, common, note, out, pass_door
from retinue.cli.foreground_run import line_to
from retinue.cli.run_argument import run_argument
from retinue.cli.terminal import limit_answer as raising
from retinue.cli.terminal import typed_answer as typed
from retinue.cli.terminal.colors import Palette, ansi
from retinue.cli.terminal.pager import show_all
from retinue.cli.terminal.terminal_style import manners
from retinue.errors import Refused
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.host.listing import RunListing
from retinue.view import format as words
from retinue.view.cells import Cells, Line
from retinue.view.format import json_line
from retinue.view.request_panel import panel_lines, panel_text, request_panel, title_text

YES = ("y", "yes", "ok", "allow")
ALWAYS = ("a", "always")
NO = ("n", "no", "deny")
N_ID = 8
HOW = {"permission": ("allowed", "denied"), "budget": ("added", "allowed to finish")}
LATER = ("later", "l", "q", "esc")
PROMPTS = {
    "permission": "y, always, no WHY, show or later, then Enter: ",
    "budget": "y, no or later, then Enter: ",
    "question": "Your answer, then Enter: ",
}
CONFIRM = {"permission": "Allow this call? [y/N] ", "budget": "Raise the limit? [y/N] "}


@click.command("approve")
@run_argument(default="")
@click.argument("answer", nargs=-1)
@click.option("--deny", is_flag=True, help="Deny the call; ANSWER is the reason.")
@click.option(
    "--always",
    is_flag=True,
    help="Allow this call, and the same call from now on, in this run and its sub-agents.",
)
@click.option(
    "--question",
    default="",
    metavar="ID",
    help="The id of the question to answer, if several are open.",
)
@click.option("--json", "as_json", is_flag=True)
@common
@pass_door
def command(
    door: CommandContext,
    run: str,
    answer: tuple[str, ...],
    deny: bool,
    always: bool,
    question: str,
    as_json: bool,
) -> int:
    """Answer a run's questions; allow or deny its tool calls. Without RUN, list all that wait.

    ANSWER is the text for a question. For a tool call it is y, always, or no with an optional
    reason; without ANSWER the call is allowed. You allow the call you were shown: name it with
    --question, or it is shown again for you to confirm."""
    if deny and always:
        raise click.UsageError("--deny and --always cannot be used together.")
    top = ""
    if run:
        with RunListing(door.places) as shelf:
            top = shelf.resolve(run).id
    if as_json or not run:
        return _list(door, as_json, top)
    with line_to(door) as client:
        questions = [
            q
            for q in client.ask(requests.QuestionsRequest(run=top))["questions"]
            if q["id"].startswith(question)
        ]
        first = _meant(door, questions, top, question)
        is_typed = not (answer or deny or always or question) and _is_person()
        if is_typed:
            answer = _typed(door, first)
        want = requests.AnswerRequest(
            run=top, text=" ".join(answer), question=first["id"], allow=not deny, always=always
        )
        if first["kind"] != "question":
            want = _decision(want, first, answer, deny=deny)
            if want.allow and not question and not is_typed and not _confirmed(door, first):
                raise Refused("question", f"Nothing was {HOW[first['kind']][0]}. {_how(first)}")
        client.ask(want)
    how = "answered" if first["kind"] == "question" else HOW[first["kind"]][0 if want.allow else 1]
    door.say(f"{how}: {one_line(first['text'], 200)}")
    return exits.OK


def _is_person() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _meant(
    door: CommandContext, questions: Sequence[dict[str, Any]], top: str, question: str
) -> dict[str, Any]:
    """The one question that is answered. Which of several is meant, nobody guesses."""
    if not questions:
        raise Refused(
            "question",
            f"Run {words.short_id(top)} has no open question" + " with that id" * bool(question),
        )
    if len(questions) > 1:
        for q in questions:
            _show(door, q)
        raise Refused(
            "question",
            f"{len(questions)} questions are open. Nothing was answered. {_how(questions[0])}",
        )
    return questions[0]


def _how(q: dict[str, Any]) -> str:
    return f"Choose one: retinue approve {words.short_id(q['run'])} --question {q['id'][:N_ID]} ..."


def _confirmed(door: CommandContext, q: dict[str, Any]) -> bool:
    """Whether somebody at a terminal permits the call that they are shown now."""
    _show(door, q)
    if not _is_person():
        return False
    return (typed.line_after(CONFIRM[q["kind"]]) or "").lower() in YES


def _typed(door: CommandContext, q: dict[str, Any]) -> tuple[str, ...]:
    """What somebody at a terminal answers to what they are shown; nothing decides by default."""
    _show(door, q)
    prompt = PROMPTS[q["kind"]]
    while (line := typed.line_after(prompt)) is not None:
        if line.lower() == "show":
            show_all(request_panel(q, door.environ.get("HOME", "")))
        elif line.lower() in LATER:
            break
        elif line:
            return tuple(line.split())
    raise Refused("question", f"Nothing was decided. {_how(q)}")


def _show(door: CommandContext, q: dict[str, Any]) -> None:
    """The panel as text, after the address that answers it."""
    how = manners(door.environ, sys.stdout, door.color)
    panel = request_panel(q, door.environ.get("HOME", ""))
    asker = f"{words.short_id(q['run'])}  {q['id'][:N_ID]}"
    lines = [asker, *panel_text(panel)]
    if how.color:
        palette = Palette(how.theme)
        title: Line = [Cells("◆", "you"), Cells(f" {title_text(panel)}", "title")]
        body = [[Cells("  "), *line] for line in panel_lines(panel)]
        lines = [asker, *(ansi(palette.text(line)) for line in [title, *body])]
    out("\n".join(lines), styled=how.color)
    if q["kind"] == "budget":
        adds = f"y adds {raising.suggested(q)}, no lets the run finish; for another amount"
        out(f"  {adds}: {raising.command(q)}")


def _decision(
    want: requests.AnswerRequest, q: dict[str, Any], answer: tuple[str, ...], *, deny: bool
) -> requests.AnswerRequest:
    """What the words mean when a call waits for a permission. Words that are neither yes nor no are
    never a yes."""
    head, rest = (answer[0].lower().rstrip(",.:"), " ".join(answer[1:])) if answer else ("", "")
    if deny:
        return replace(want, allow=False)
    if head in NO:
        return replace(want, allow=False, always=False, text=rest)
    if head in ALWAYS and not rest and q["kind"] == "permission":
        return replace(want, allow=True, always=True, text="")
    if (head in YES and not rest) or not head:
        return replace(want, allow=True, text="")
    if q["kind"] == "budget":
        raise click.UsageError(
            "This is a question about a limit. Answer y or no, or set the amount: "
            f"{raising.command(q)}"
        )
    raise click.UsageError(
        f"This is a permission request. Answer y, always or no, not {one_line(want.text, 60)!r}."
    )


def _list(door: CommandContext, as_json: bool, top: str = "") -> int:
    with RunListing(door.places) as shelf:
        if not any(
            line.state in ("needs_input", "waiting", "running", "paused")
            for line in shelf.open_runs()
        ):
            if as_json:
                out("[]")
            door.say("Nothing needs you.")
            return exits.OK
    with line_to(door) as client:
        questions = client.ask(requests.QuestionsRequest(run=top))["questions"]
    if as_json:
        out(json_line(questions))
        return exits.OK
    for q in questions:
        _show(door, q)
    if not questions:
        note("Nothing needs you.")
    return exits.OK
