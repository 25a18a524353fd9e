"""What a person is shown before a decision: the thing itself, facts in a fixed order, and the
choices. The live view, `top`, `chat`, `approve` and plain lines show the same panel; it is made of
what the host tells of a question."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from retinue.core import arguments
from retinue.formats.safe_text import one_line, reveal, several_lines
from retinue.view import diff_lines
from retinue.view import format as view_format
from retinue.view.call_wants import signs
from retinue.view.cells import Cells, Line, plain

LABEL = 11
MOST_SAID = 300
COPY = "a copy of its own"


class PanelChoice(NamedTuple):
    """`key` marks it, and `does` says what Enter then does. `needs_all`: only who has seen
    everything can mean it; `counts_unseen`: the line says how much was not seen. With `text` a line
    can be written behind it, which begins so."""

    key: str
    label: str
    does: str
    needs_all: bool = False
    counts_unseen: bool = False
    text: str | None = None


class Fact(NamedTuple):
    label: str
    text: str
    role: str = ""


class RequestPanel(NamedTuple):
    """`title` after its glyph: `who` wants something, and what (`wants`, "" for a question). `body`
    are lines that are shown whole; then comes what is still `untouched`. `is_diff`: its changed
    lines are counted. Without choices the answer is a text."""

    title: str
    facts: tuple[Fact, ...] = ()
    body: tuple[Line, ...] = ()
    choices: tuple[PanelChoice, ...] = ()
    untouched: str = "Nothing is decided yet."
    is_diff: bool = False
    news: str = ""
    signs: str = ""
    who: str = ""
    wants: str = ""
    n_added: int = 0
    n_removed: int = 0


MOST_KEYS = 9
"""So many choices have a digit of their own. More that are fixed are listed, and one is typed."""
DENY = PanelChoice("n", "Deny, with a reason", "denies", text="")


def request_panel(q: Mapping[str, Any], home: str = "") -> RequestPanel:
    """The panel of a question as the host tells it. Paths below `home` are shown with `~`."""
    if q["kind"] == "budget":
        return _budget(q)
    if q["kind"] != "permission":
        return _question(q)
    preview = q.get("preview") or {}
    if preview.get("command"):
        return _command(q, preview, home)
    if preview.get("files"):
        return _change(q, preview, home)
    return _call(q, preview)


def _who(q: Mapping[str, Any]) -> str:
    return one_line(view_format.agent_label(q["label"]), 40)


def _wish(q: Mapping[str, Any], what: str) -> str:
    return f"{_who(q)} wants to {what}"


def _change(q: Mapping[str, Any], preview: Mapping[str, Any], home: str) -> RequestPanel:
    files = preview["files"]
    added, removed = (sum(f.get(side, 0) for f in files) for side in ("added", "removed"))
    what = f"{len(files)} files" if len(files) > 1 else _path(files[0])
    verb = {"create": "create", "delete": "delete", "move": "move"}.get(files[0].get("kind"), "")
    verb = verb if len(files) == 1 and verb else "change"
    body: list[Line] = []
    for file in files:
        if len(files) > 1:
            title = f"{file.get('kind', 'change')} {_path(file)}"
            body.append(
                [Cells(f"{title}  {signs(file.get('added', 0), file.get('removed', 0))}", "title")]
            )
        if file.get("note"):
            body.append([Cells(f"not shown: {one_line(file['note'])}", "quiet")])
        body += diff_lines.diff_lines(file.get("diff", ""))
        if file.get("n_hidden"):
            body.append([Cells(f"{file['n_hidden']} more lines are too many to show", "fail")])
    tree = f"your working tree, {_home(preview.get('directory', ''), home)}"
    where = f"{COPY} (worktree)" if preview.get("isolated") else tree
    subject = _path(files[0]) if len(files) == 1 and q["tool"] in ("edit", "write") else ""
    always = f"Allow every {q['tool']} of {subject} in this run" if subject else ""
    return RequestPanel(
        title=_wish(q, f"{verb} {what}"),
        who=_who(q),
        wants=f"{verb} {what}",
        signs=signs(added, removed),
        n_added=added,
        n_removed=removed,
        facts=(
            *_reason(q),
            Fact("where", where),
            *_limits(q),
            *_notes([f["path"] for f in files]),
        ),
        body=tuple(body),
        choices=(
            PanelChoice("y", "Allow this change once", "allows this once", counts_unseen=True),
            *(
                [PanelChoice("A", always, "allows it from now on")]
                if always and _can_always(q)
                else []
            ),
            DENY,
        ),
        untouched="Nothing has been changed.",
        is_diff=True,
    )


def _path(file: Mapping[str, Any]) -> str:
    path = reveal(file["path"], keep="")
    return f"{path} to {reveal(file['to'], keep='')}" if file.get("to") else path


def _can_always(q: Mapping[str, Any]) -> bool:
    """A patch names its files itself, so that no rule covers it."""
    args = arguments.read(q["call"].get("args", "{}")) or {}
    return bool(args.get("path"))


def _command(q: Mapping[str, Any], preview: Mapping[str, Any], home: str) -> RequestPanel:
    it = _in_copy(preview["command"], preview) if preview.get("isolated") else preview["command"]
    is_contained = bool(it.get("sandbox"))
    facts = [
        Fact("directory", _home(reveal(it["directory"], keep=""), home)),
        Fact("network", _network(it)),
        _sandbox(it),
        Fact("may write", _may_write(it, home), "" if is_contained else "fail"),
        *_reason(q),
        *_limits(q),
        *_notes([it["command"]]),
    ]
    always = "Allow exactly this command in this run and its sub-agents"
    return RequestPanel(
        title=_wish(q, "run a command"),
        who=_who(q),
        wants="run a command",
        facts=tuple(facts),
        body=tuple(_text_lines(reveal(it["command"]), "title")),
        choices=(
            PanelChoice("y", "Allow this command once", "allows this once", needs_all=True),
            *(
                [PanelChoice("A", always, "allows it from now on", needs_all=True)]
                if is_contained
                else []
            ),
            DENY,
        ),
        untouched="Nothing has been run.",
    )


def _in_copy(it: Mapping[str, Any], preview: Mapping[str, Any]) -> dict[str, Any]:
    """Where the copy is tells a reader nothing: it is called what it is."""
    root = preview.get("directory", "")

    def shown_path(path: str) -> str:
        rest = path[len(root) :] if root and path.startswith(root) else None
        return path if rest is None else f"{COPY}{rest}"

    writes = tuple(map(shown_path, it.get("may_write", ())))
    return {**it, "directory": shown_path(it["directory"]), "may_write": writes}


def _network(it: Mapping[str, Any]) -> str:
    return "yes, all hosts" if it.get("network") else "no"


def _sandbox(it: Mapping[str, Any]) -> Fact:
    if not it.get("sandbox"):
        return Fact("sandbox", "none: runs with all your file permissions", "fail")
    seconds = it.get("stops_after_seconds")
    until = f", stops after {_limit(seconds)}" if seconds else ""
    behind = ", in the background until the run ends" if it.get("is_background") else until
    return Fact("sandbox", f"on: {it['sandbox']}{behind}")


def _may_write(it: Mapping[str, Any], home: str) -> str:
    if it.get("read_only"):
        return f"nothing: {one_line(it['read_only'], 200)}"
    if not it.get("sandbox"):
        return "everything that you may write"
    paths = [_home(reveal(path, keep=""), home) for path in it.get("may_write", ())]
    return f"{', '.join([*paths, 'a /tmp of its own'])}; nothing else"


def _call(q: Mapping[str, Any], preview: Mapping[str, Any]) -> RequestPanel:
    """A call with unknown effects: its name and every argument."""
    problem = preview.get("problem", "")
    facts = [Fact("would fail", one_line(problem, 400), "fail")] if problem else []
    price = view_format.price_text(q).strip(" ()")
    facts += [Fact("cost", price)] if price else []
    return RequestPanel(
        title=_wish(q, f"call {one_line(q['tool'] or 'a tool', 60)}"),
        who=_who(q),
        wants=f"call {one_line(q['tool'] or 'a tool', 60)}",
        facts=(*facts, *_reason(q), *_limits(q)),
        body=tuple(_text_lines(q["shown"])),
        choices=(
            PanelChoice("y", "Allow this call once", "allows this once", needs_all=True),
            PanelChoice(
                "A",
                "Allow this same call in this run and its sub-agents",
                "allows it from now on",
                needs_all=True,
            ),
            DENY,
        ),
        untouched="Nothing has been done.",
    )


def _question(q: Mapping[str, Any]) -> RequestPanel:
    args = arguments.read(q["call"].get("args", "{}")) or {}
    fixed, listed = list(q.get("choices") or ()), args.get("options")
    suggested = listed if isinstance(listed, list) and not fixed else []
    options = [one_line(str(o)) for o in fixed or suggested]
    text = args.get("question") if suggested else None
    question = several_lines(text if isinstance(text, str) else q["text"]).strip()
    first, _, rest = question.partition("\n")
    waiting = [one_line(name, 40) for name in q.get("holds_up", ())]
    waiting_text = f", and {', '.join(waiting)} with it" if waiting else ""
    if len(fixed) > MOST_KEYS:
        rest, options = "\n".join([rest, "One of:", *options]).strip(), []
    choices = [PanelChoice(str(n), o, "answers this") for n, o in enumerate(options[:MOST_KEYS], 1)]
    if choices and not fixed:
        choices.append(PanelChoice("0", "Own words", "answers with this", text=""))
    return RequestPanel(
        title=f"{_who(q)} asks: {first}",
        who=_who(q),
        body=tuple(_text_lines(rest)) if rest else (),
        choices=tuple(choices),
        untouched=f"Without an answer {_who(q)} waits{waiting_text}.",
    )


def _budget(q: Mapping[str, Any]) -> RequestPanel:
    limit = q["limit"]
    amount = (q.get("suggested") or {}).get(limit) or 0
    amount_text = f"{amount:.2f}" if limit == "usd" else str(int(amount))
    what = "dollars" if limit == "usd" else {"calls": "tool calls"}.get(limit, limit)
    return RequestPanel(
        title=f"{_who(q)} is at its limit and asks for more",
        who=_who(q),
        body=tuple(_text_lines(several_lines(q["text"]))),
        choices=(
            PanelChoice("y", f"Add to the limit, in {what}", "adds this", True, text=amount_text),
            PanelChoice("n", "Finish with one last turn", "lets it finish"),
            PanelChoice("e", "Cancel the run and its sub-agents", "cancels it"),
        ),
        untouched="Without an answer the run waits and spends nothing more.",
    )


def _reason(q: Mapping[str, Any]) -> list[Fact]:
    why = one_line(q.get("why", ""), MOST_SAID)
    return [Fact("why", f'"{why}"')] if why else []


def _limits(q: Mapping[str, Any]) -> list[Fact]:
    out = []
    if q.get("holds_up"):
        out.append(Fact("holds up", ", ".join(one_line(name, 40) for name in q["holds_up"])))
    if q.get("asked_by"):
        out.append(Fact("asked by", one_line(q["asked_by"].replace("'", ""), 200)))
    return out


def _notes(texts: Iterable[str]) -> list[Fact]:
    """Letters of another script than Latin, which may look like others."""
    scripts: dict[str, str] = {}
    for c in "".join(texts):
        if not c.isascii() and c.isalpha():
            script = unicodedata.name(c, "UNKNOWN").partition(" ")[0].capitalize()
            if script != "Latin":
                scripts.setdefault(script, f"{c} (U+{ord(c):04X})")
    letters = ", ".join(f"{script} letters such as {c}" for script, c in scripts.items())
    return [Fact("note", f"it contains {letters}", "fail")] if letters else []


def _home(path: str, home: str) -> str:
    if home and (path == home or path.startswith(home.rstrip("/") + "/")):
        return "~" + path[len(home.rstrip("/")) :]
    return path


def _text_lines(text: str, role: str = "") -> list[Line]:
    return [[Cells(part.expandtabs(4), role)] for part in text.split("\n")]


def panel_lines(panel: RequestPanel) -> list[Line]:
    """Everything between the title and the choices, in order: of a change the facts come first, of
    a command the command."""
    facts: list[Line] = [
        [Cells(f"{fact.label:<{LABEL}}", "quiet"), Cells(fact.text, fact.role)]
        for fact in panel.facts
    ]
    body = [[Cells("" if panel.is_diff else "  "), *line] for line in panel.body]
    first, second = (facts, body) if panel.is_diff else (body, facts)
    return [*first, *([[Cells("")]] if first and second else []), *second]


def title_text(panel: RequestPanel) -> str:
    return f"{panel.title}  {panel.signs}" if panel.signs else panel.title


def panel_text(panel: RequestPanel) -> list[str]:
    """The panel as plain lines, for pipes, logs and `approve`."""
    return [f"◆ {title_text(panel)}", *(f"  {plain(line)}".rstrip() for line in panel_lines(panel))]


def _limit(seconds: float) -> str:
    """`10m` for whole minutes: a limit is a round number more often than not."""
    is_round = seconds % 60 == 0 and seconds < 3_600
    return view_format.short_span(seconds * 1000) if is_round else view_format.span(seconds * 1000)
