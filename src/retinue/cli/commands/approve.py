"""`retinue approve`: answers questions and permission requests of runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import click
from msgspec.structs import replace

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, note, out, pass_context
from retinue.cli.foreground_run import line_to
from retinue.cli.run_argument import run_argument
from retinue.cli.terminal import limit_answer
from retinue.cli.terminal.colors import Palette, ansi
from retinue.cli.terminal.pager import show_all
from retinue.cli.terminal.terminal_style import detect_style
from retinue.cli.terminal.typed_answer import line_after
from retinue.errors import NotFound, Refused
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.host.client import HostClient
from retinue.host.listing import RunListing
from retinue.view.cells import Cells, Line
from retinue.view.format import json_line, names_question, short_id
from retinue.view.request_panel import panel_lines, panel_text, request_panel, title_text

YES = ("y", "yes", "ok", "allow")
ALWAYS = ("a", "always")
NO = ("n", "no", "deny")
N_ID = 8
_QUESTION_ID = re.compile("[0-9a-f]{6,16}")
HOW = {"permission": ("allowed", "denied"), "budget": ("added", "allowed to finish")}
LATER = ("later", "l", "q", "esc")
PROMPTS = {
    "permission": "y, always, no WHY, show or later, then Enter: ",
    "budget": "y, no or later, then Enter: ",
    "question": "Your answer, then Enter: ",
}
CONFIRM = {"permission": "Allow this call? [y/N] ", "budget": "Raise the limit? [y/N] "}


@click.command("approve")
@run_argument("name", default="", metavar="[QUESTION|RUN]")
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
    help="With RUN: the id of the question to answer, if several are open.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the open questions as a JSON list.")
@common
@pass_context
def command(
    context: CommandContext,
    name: str,
    answer: tuple[str, ...],
    deny: bool,
    always: bool,
    question: str,
    as_json: bool,
) -> int:
    """Answer a run's questions; allow or deny its tool calls. Without QUESTION or RUN, list all
    that wait.

    QUESTION is the id of a question, or at least the first six characters of it; the answer goes to
    that question and to no other. RUN is a run that has one open question.

    ANSWER is the text for a question. For a tool call it is y, always, or no with an optional
    reason. Without ANSWER, a terminal shows the question and asks you; elsewhere a call named by
    its id is allowed. You allow the call you were shown: name it by its id, or it is shown again
    for you to confirm."""
    if deny and always:
        raise click.UsageError("--deny and --always cannot be used together.")
    if as_json or not name:
        return _list(context, as_json, name, question)
    run = _run(context, name)
    with line_to(context) as client:
        questions = _named(client, name, run, question)
        first = _only(context, questions, name, question)
        is_named = bool(question) or names_question(name, first["id"])
        is_typed = not (answer or deny or always) and _is_person()
        if is_typed:
            answer = _typed(context, first)
        request = requests.AnswerRequest(
            run=first["run"],
            text=" ".join(answer),
            question=first["id"],
            allow=not deny,
            always=always,
        )
        if first["kind"] != "question":
            request = _decision(request, first, answer, deny=deny)
            is_seen = is_named or is_typed
            if request.allow and not is_seen and not _confirmed(context, first):
                raise Refused("question", f"Nothing was {HOW[first['kind']][0]}. {_how(first)}")
        elif not answer and not deny:
            raise click.UsageError(f"This question needs an answer in words. {_how(first)}")
        client.ask(request)
    how = (
        "answered" if first["kind"] == "question" else HOW[first["kind"]][0 if request.allow else 1]
    )
    context.say(f"{how}: {one_line(first['text'], 200)}")
    return exit_codes.OK


def _is_person() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _run(context: CommandContext, name: str) -> str:
    """The id of the run that a name means, "" if the name can only mean a question."""
    with RunListing(context.paths) as listing:
        try:
            return listing.resolve(name).id
        except NotFound:
            if not _QUESTION_ID.fullmatch(name) or not _has_open_runs(listing):
                raise
    return ""


def _named(client: HostClient, name: str, run: str, question: str) -> list[dict[str, Any]]:
    """The open questions that are meant: the one with this id, or those of the run."""
    everything = client.ask(requests.QuestionsRequest())["questions"]
    by_id = [q for q in everything if names_question(name, q["id"])]
    if question or not by_id:
        if not run:
            raise NotFound(
                f"No open question {name!r}, and no run. The question may already have been "
                "answered. Run `retinue approve` to list what is waiting."
            )
        of_run = client.ask(requests.QuestionsRequest(run=run))["questions"]
        return [q for q in of_run if q["id"].startswith(question)]
    if run:
        raise Refused(
            "question",
            f"{name!r} is the start of a question's id and of run {short_id(run)}. Nothing was "
            f"answered. Use more of the id: {', '.join(q['id'] for q in by_id)}",
        )
    return by_id


def _only(
    context: CommandContext, questions: Sequence[dict[str, Any]], name: str, question: str
) -> dict[str, Any]:
    """The one question that is answered. Retinue does not guess which of several is meant."""
    if not questions:
        raise Refused(
            "question",
            f"Run {name} has no open question" + " with that id" * bool(question),
        )
    if len(questions) > 1:
        for q in questions:
            _show(context, q)
        raise Refused(
            "question",
            f"{len(questions)} questions are open. Nothing was answered. {_how(questions[0])}",
        )
    return questions[0]


def _how(q: dict[str, Any]) -> str:
    answer = "TEXT" if q["kind"] == "question" else "y"
    return f"Answer it by its id: retinue approve {q['id'][:N_ID]} {answer}"


def _confirmed(context: CommandContext, q: dict[str, Any]) -> bool:
    """Whether the user at this terminal allows the call that is shown now."""
    _show(context, q)
    if not _is_person():
        return False
    return (line_after(CONFIRM[q["kind"]]) or "").lower() in YES


def _typed(context: CommandContext, q: dict[str, Any]) -> tuple[str, ...]:
    """What the user at this terminal answers to the question shown. There is no default."""
    _show(context, q)
    prompt = PROMPTS[q["kind"]]
    while (line := line_after(prompt)) is not None:
        if line.lower() == "show":
            show_all(request_panel(q, context.environ.get("HOME", "")))
        elif line.lower() in LATER:
            break
        elif line:
            return tuple(line.split())
    raise Refused("question", f"Nothing was decided. {_how(q)}")


def _show(context: CommandContext, q: dict[str, Any]) -> None:
    """Print the panel as text, below the ids of its run and question."""
    style = detect_style(context.environ, sys.stdout, context.color)
    panel = request_panel(q, context.environ.get("HOME", ""))
    asker = f"{short_id(q['run'])}  {q['id'][:N_ID]}"
    lines = [asker, *panel_text(panel)]
    if style.color:
        palette = Palette(style.theme)
        title: Line = [Cells("◆", "you"), Cells(f" {title_text(panel)}", "title")]
        body = [[Cells("  "), *line] for line in panel_lines(panel)]
        lines = [asker, *(ansi(palette.text(line)) for line in [title, *body])]
    out("\n".join(lines), styled=style.color)
    if q["kind"] == "budget":
        adds = f"y adds {limit_answer.suggested(q)}, no lets the run finish; for another amount"
        out(f"  {adds}: {limit_answer.command(q)}")


def _decision(
    request: requests.AnswerRequest, q: dict[str, Any], answer: tuple[str, ...], *, deny: bool
) -> requests.AnswerRequest:
    """The decision that the words of an answer mean. Words that are neither yes nor no never
    allow."""
    head, rest = (answer[0].lower().rstrip(",.:"), " ".join(answer[1:])) if answer else ("", "")
    if deny:
        return replace(request, allow=False)
    if head in NO:
        return replace(request, allow=False, always=False, text=rest)
    if head in ALWAYS and not rest and q["kind"] == "permission":
        return replace(request, allow=True, always=True, text="")
    if (head in YES and not rest) or not head:
        return replace(request, allow=True, text="")
    if q["kind"] == "budget":
        raise click.UsageError(
            "This is a question about a limit. Answer y or no, or set the amount: "
            f"{limit_answer.command(q)}"
        )
    raise click.UsageError(
        f"This is a permission request. Answer y, always or no, not {one_line(request.text, 60)!r}."
    )


def _list(context: CommandContext, as_json: bool, name: str, question: str) -> int:
    """Print what waits for a person: everything, or what a name means."""
    with RunListing(context.paths) as listing:
        is_idle = not _has_open_runs(listing)
    run = _run(context, name) if name else ""
    if is_idle:
        if as_json:
            out("[]")
        context.say("Nothing needs you.")
        return exit_codes.OK
    with line_to(context) as client:
        if name:
            questions = _named(client, name, run, question)
        else:
            questions = client.ask(requests.QuestionsRequest())["questions"]
    if as_json:
        out(json_line(questions))
        return exit_codes.OK
    for q in questions:
        _show(context, q)
    if not questions:
        note("Nothing needs you.")
    return exit_codes.OK


def _has_open_runs(listing: RunListing) -> bool:
    states = ("needs_input", "waiting", "running", "paused")
    return any(line.state in states for line in listing.open_runs())
