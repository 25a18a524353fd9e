"""`retinue approve`: answer what runs ask."""

from __future__ import annotations

import click

from retinue.cli import exits, wire, words
from retinue.cli.completing import run_argument
from retinue.cli.door import Door, common, note, out, pass_door
from retinue.cli.running import dump, line_to
from retinue.cli.shelf import Shelf


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
    """Answer the oldest question of a run: permit a call, or reply to what it asks. Without a run, list all."""
    text = " ".join(answer)
    if deny and always:
        raise click.UsageError("--deny and --always do not go together.")
    top = ""
    if run:
        with Shelf(door.places) as shelf:
            top = shelf.resolve(run).id
    if not run:
        return _list(door, as_json)
    with line_to(door) as client:
        want = wire.Answer(run=top, text=text, question=question, allow=not deny, always=always)
        done = client.ask(want)
    door.say(f"{'denied' if deny else 'answered'}: {words.line(done['question'], 200)}")
    return exits.OK


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
