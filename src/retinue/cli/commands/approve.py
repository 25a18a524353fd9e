"""`retinue approve`: answer what runs ask."""

from __future__ import annotations

import click
from msgspec.structs import replace

from retinue.cli import exits, wire, words
from retinue.cli.completing import run_argument
from retinue.cli.door import Door, common, note, out, pass_door
from retinue.cli.running import dump, line_to
from retinue.cli.shelf import Shelf
from retinue.errors import Refused

YES = ("y", "yes", "ok", "allow")
ALWAYS = ("a", "always")
NO = ("n", "no", "deny")


@click.command("approve")
@run_argument(default="")
@click.argument("answer", nargs=-1)
@click.option("--deny", is_flag=True, help="No, instead of yes; ANSWER says why.")
@click.option("--always", is_flag=True, help="Yes, and to equal calls in this tree from now on.")
@click.option("--question", default="", metavar="ID", help="This question, instead of the oldest.")
@click.option("--json", "as_json", is_flag=True)
@common
@pass_door
def command(
    door: Door, run: str, answer: tuple[str, ...], deny: bool, always: bool, question: str, as_json: bool
) -> int:
    """Answer the oldest question of a run: permit a call, or reply to what it asks. Without a run, list all.

    ANSWER is the reply to a question. To a call it is y, always, or no with a reason behind it; without it the call is
    permitted.
    """
    if deny and always:
        raise click.UsageError("--deny and --always do not go together.")
    text = " ".join(answer)
    top = ""
    if run:
        with Shelf(door.places) as shelf:
            top = shelf.resolve(run).id
    if not run:
        return _list(door, as_json)
    with line_to(door) as client:
        asked = [q for q in client.ask(wire.Questions(run=top))["questions"] if q["id"].startswith(question)]
        if not asked:
            raise Refused(
                "question", f"run {words.short(top)} is not asking anything" + (" by that id" * bool(question))
            )
        first = asked[0]
        want = wire.Answer(run=top, text=text, question=first["id"], allow=not deny, always=always)
        if first["kind"] == "permission":
            want = _decision(want, answer, deny=deny)
        client.ask(want)
    how = "answered" if first["kind"] != "permission" else "permitted" if want.allow else "denied"
    door.say(f"{how}: {words.line(first['text'], 200)}")
    return exits.OK


def _decision(want: wire.Answer, answer: tuple[str, ...], *, deny: bool) -> wire.Answer:
    """What the words mean when a call waits for a permission. Words that are neither yes nor no are never a yes."""
    head, rest = (answer[0].lower().rstrip(",.:"), " ".join(answer[1:])) if answer else ("", "")
    if deny:
        return replace(want, allow=False)
    if head in NO:
        return replace(want, allow=False, always=False, text=rest)
    if head in ALWAYS and not rest:
        return replace(want, allow=True, always=True, text="")
    if (head in YES and not rest) or not head:
        return replace(want, allow=True, text="")
    raise click.UsageError(f"it asks for a permission: say y, always or no, not {words.line(want.text, 60)!r}.")


def _list(door: Door, as_json: bool) -> int:
    with Shelf(door.places) as shelf:
        if not any(line.state in ("needs_input", "waiting", "running", "paused") for line in shelf.open_runs()):
            door.say("nobody asks anything")
            return exits.OK
    with line_to(door) as client:
        asked = client.ask(wire.Questions())["questions"]
    for q in asked:
        if as_json:
            out(dump(q))
        else:
            out(f"{words.short(q['run'])}  {words.agent(q['label'])}  {q['kind']}  {words.line(q['text'], 200)}")
            if q["kind"] == "permission":
                out("        " + words.safe(q["shown"]).replace("\n", "\n        "))
    if not asked:
        note("nobody asks anything")
    return exits.OK
