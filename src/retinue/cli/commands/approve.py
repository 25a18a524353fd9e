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
from retinue.errors import Refused
from retinue.formats.safe_text import one_line, several_lines
from retinue.host import requests
from retinue.host.listing import RunListing
from retinue.view import format as words
from retinue.view.format import json_line

YES = ("y", "yes", "ok", "allow")
ALWAYS = ("a", "always")
NO = ("n", "no", "deny")
N_ID = 8
HOW = {"permission": ("allowed", "denied"), "budget": ("added", "allowed to finish")}
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
    text = " ".join(answer)
    top = ""
    if run:
        with RunListing(door.places) as shelf:
            top = shelf.resolve(run).id
    if not run:
        return _list(door, as_json)
    with line_to(door) as client:
        asked = [
            q
            for q in client.ask(requests.QuestionsRequest(run=top))["questions"]
            if q["id"].startswith(question)
        ]
        first = _meant(asked, top, question)
        want = requests.AnswerRequest(
            run=top, text=text, question=first["id"], allow=not deny, always=always
        )
        if first["kind"] != "question":
            want = _decision(want, first, answer, deny=deny)
            if want.allow and not question and not _confirmed(first):
                raise Refused("question", f"Nothing was {HOW[first['kind']][0]}. {_how(first)}")
        client.ask(want)
    how = "answered" if first["kind"] == "question" else HOW[first["kind"]][0 if want.allow else 1]
    door.say(f"{how}: {one_line(first['text'], 200)}")
    return exits.OK


def _meant(asked: Sequence[dict[str, Any]], top: str, question: str) -> dict[str, Any]:
    """The one question that is answered. Which of several is meant, nobody guesses."""
    if not asked:
        raise Refused(
            "question",
            f"Run {words.short_id(top)} has no open question" + " with that id" * bool(question),
        )
    if len(asked) > 1:
        for q in asked:
            _show(q)
        raise Refused(
            "question",
            f"{len(asked)} questions are open. Nothing was answered. {_how(asked[0])}",
        )
    return asked[0]


def _how(q: dict[str, Any]) -> str:
    return f"Choose one: retinue approve {words.short_id(q['run'])} --question {q['id'][:N_ID]} ..."


def _confirmed(q: dict[str, Any]) -> bool:
    """Whether somebody at a terminal permits the call that they are shown now."""
    _show(q)
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    return (typed.line_after(CONFIRM[q["kind"]]) or "").lower() in YES


def _show(q: dict[str, Any]) -> None:
    asker = f"{words.short_id(q['run'])}  {q['id'][:N_ID]}  {words.agent_label(q['label'])}"
    out(f"{asker}  {q['kind']}  {one_line(q['text'], 200)}")
    if q["kind"] == "permission":
        out("        " + several_lines(q["shown"]).replace("\n", "\n        "))
        if price := words.asked_price(q):
            out(f"       {price}")
    if q["kind"] == "budget":
        adds = f"y adds {raising.suggested(q)}, no lets the run finish; for another amount"
        out(f"        {adds}: {raising.command(q)}")


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


def _list(door: CommandContext, as_json: bool) -> int:
    with RunListing(door.places) as shelf:
        if not any(
            line.state in ("needs_input", "waiting", "running", "paused")
            for line in shelf.open_runs()
        ):
            if as_json:
                out("[]")
            door.say("No questions are waiting.")
            return exits.OK
    with line_to(door) as client:
        asked = client.ask(requests.QuestionsRequest())["questions"]
    if as_json:
        out(json_line(asked))
        return exits.OK
    for q in asked:
        _show(q)
    if not asked:
        note("No questions are waiting.")
    return exits.OK
