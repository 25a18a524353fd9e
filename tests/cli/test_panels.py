"""Requests as panels, and `top`, as text: what is shown of an edit, a command, a question and a
limit, whatever hides in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue.cli.terminal.decision import Decision
from retinue.cli.terminal.request_answer import answer, answer_report
from retinue.core.events import Decided, LogEntry, TextReturned
from retinue.core.messages import ToolCall
from retinue.host import requests
from retinue.host.tree_items import Stepped
from retinue.view.call_wants import question_wants
from retinue.view.cells import plain
from retinue.view.done_changes import DoneChanges
from retinue.view.request_panel import panel_text, request_panel
from retinue.view.top_frame import TopFacts, TopList, top_frame
from tests.cli.test_frames import row, seconds

DIFF = """@@ -112,2 +112,5 @@ class Client:
     def send(self, request, timeout=None):
-        return self._pool.send(request, timeout)
+        policy = self.policy or Policy(total=timeout)
+        for attempt in policy.attempts():
+            with attempt:
+                return self._pool.send(request, attempt.left)"""


def question(kind: str = "permission", tool: str = "edit", **more: Any) -> dict[str, Any]:
    call = {"id": "c", "name": tool, "args": json.dumps(more.pop("args", {}))}
    return {
        "id": "0123456789abcdef",
        "run": "r",
        "root": "r",
        "label": "sync-client",
        "kind": kind,
        "text": "Edit it?",
        "tool": tool,
        "index": 0,
        "call": call,
        "shown": "edit\n  path: x",
        **more,
    }


def shown(q: dict[str, Any], width: int = 80, height: int = 40) -> list[str]:
    decision = Decision(request_panel(q, "/srv/me"), lambda key, text: None)
    decision.frame(width - 1, height, 0.0)
    decision.drawn(0.0)
    return [line.plain.rstrip() for line in decision.frame(width - 1, height, 9.0)]


EDIT = question(
    args={"path": "src/client.py"},
    why="Give the sync client the same policy.",
    asked_by="mode 'manual' of main, which covers tools that write files",
    holds_up=["sync-tests"],
    preview={
        "files": [{"path": "src/client.py", "added": 4, "removed": 1, "diff": DIFF}],
        "directory": "/srv/me/harbor",
    },
)


def test_an_edit_shows_its_diff_and_what_asks() -> None:
    assert shown(EDIT) == [
        " ◆ sync-client wants to change src/client.py  +4 -1",
        "",
        '   why        "Give the sync client the same policy."',
        "   where      your working tree, ~/harbor",
        "   holds up   sync-tests",
        "   asked by   mode manual of main, which covers tools that write files",
        "",
        "   class Client:",
        "    112        def send(self, request, timeout=None):",
        "    113  -         return self._pool.send(request, timeout)",
        "    113  +         policy = self.policy or Policy(total=timeout)",
        "    114  +         for attempt in policy.attempts():",
        "    115  +             with attempt:",
        "    116  +                 return self._pool.send(request, attempt.left)",
        "",
        "   y  Allow this change once",
        "   A  Allow every edit of src/client.py in this run",
        "   n  Deny, with a reason",
        "   o  Open the full diff        esc  Later",
        "   Choose, then press ↵. Nothing has been changed.",
    ]


COMMAND = {
    "command": "pip install 'httpx[http2]==1.4.*'",
    "directory": "/srv/me/harbor",
    "network": True,
    "sandbox": "bubblewrap",
    "may_write": ["/srv/me/harbor"],
    "stops_after_seconds": 600,
}


def test_a_command_shows_what_will_be_enforced() -> None:
    q = question(tool="shell", preview={"command": COMMAND}, asked_by="rule 'ask: shell' of main")
    assert shown(q) == [
        " ◆ sync-client wants to run a command",
        "",
        "     pip install 'httpx[http2]==1.4.*'",
        "",
        "   directory  ~/harbor",
        "   network    yes, all hosts",
        "   sandbox    on: bubblewrap, stops after 10m",
        "   may write  ~/harbor, a /tmp of its own; nothing else",
        "   asked by   rule ask: shell of main",
        "",
        "   y  Allow this command once",
        "   A  Allow exactly this command in this run and its sub-agents",
        "   n  Deny, with a reason",
        "   esc  Later",
        "   Choose, then press ↵. Nothing has been run.",
    ]


def test_without_a_sandbox_it_is_said_and_always_is_not_offered() -> None:
    bare = {**COMMAND, "sandbox": ""}
    panel = request_panel(question(tool="shell", preview={"command": bare}))
    facts = {fact.label: fact for fact in panel.facts}
    assert facts["sandbox"].text == "none: runs with all your file permissions"
    assert facts["sandbox"].role == facts["may write"].role == "fail"
    assert [choice.key for choice in panel.choices] == ["y", "n"]


def test_a_question_has_its_options_and_own_words() -> None:
    args = {"question": "Which errors should be retried?", "options": ["429", "every 5xx"]}
    q = question("question", "ask", args=args, holds_up=["main"])
    assert shown(q) == [
        " ◆ sync-client asks: Which errors should be retried?",
        "   1  429",
        "   2  every 5xx",
        "   0  Own words",
        "   esc  Later",
        "   Choose, then press ↵. Without an answer sync-client waits, and main with",
        "   it.",
    ]
    want = answer(q, "2", "")
    assert isinstance(want, requests.AnswerRequest) and want.text == "every 5xx"
    own = answer(q, "0", "only idempotent ones")
    assert isinstance(own, requests.AnswerRequest) and own.text == "only idempotent ones"


def test_what_hides_in_a_request_is_spelled_out() -> None:
    evil = {**COMMAND, "command": "rm -rf \u202e/\x1b[2J\u0430bc"}
    panel = request_panel(question(tool="shell", preview={"command": evil}, label="x\x1b[2J"))
    text = "\n".join(panel_text(panel))
    assert "\\u202e" in text and "\\x1b[2J" in text and "\x1b" not in text and "\u202e" not in text
    assert "note       it contains Cyrillic letters such as \u0430 (U+0430)" in text
    file = {"path": "a\u202e.py", "diff": "@@ -1,1 +1,1 @@\n-a\n+b \u2066 ", "added": 1}
    texts = "\n".join(panel_text(request_panel(question(preview={"files": [file]}))))
    assert "a\\u202e.py" in texts and "\\u2066·" in texts


@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_every_panel_fits(width: int) -> None:
    for q in (EDIT, question(tool="shell", preview={"command": COMMAND}), question()):
        for height in (3, 10, 24, 50):
            lines = shown(q, width, height)
            assert len(lines) <= height and all(len(line) < width for line in lines)


def test_a_choice_becomes_a_request_and_a_line() -> None:
    allow, always, deny = (answer(EDIT, key, "not so") for key in ("y", "A", "n"))
    assert isinstance(allow, requests.AnswerRequest) and allow.allow and not allow.always
    assert isinstance(always, requests.AnswerRequest) and always.always
    assert isinstance(deny, requests.AnswerRequest) and (deny.allow, deny.text) == (False, "not so")
    assert answer_report(EDIT, "y", "", 1) == "Allowed once. 1 more needs you: a"
    assert answer_report(EDIT, "n", "not so") == "Denied. sync-client was told: not so"
    assert question_wants(question(args={"path": "a.py", "old": "x", "new": "y\nz"})) == (
        "change a.py +2 -1"
    )


def test_top_lists_what_is_open_first_and_what_needs_you_on_a_line_of_its_own() -> None:
    lead = row("timeouts", "waiting", "for 9: 3 done", seconds(10, 30), 2.14, depth=0)
    lead = type(lead)(**{**{f: getattr(lead, f) for f in lead.__struct_fields__}, "root": "a"})
    asks = row(
        "sync-client",
        "needs_input",
        "change a.py +1 -1",
        seconds(2, 2),
        0.33,
        root="a",
        idle_ms=64_000,
    )
    over = row("login", "completed", "it uses local time", seconds(0, 41), 0.03, depth=0, root="b")
    facts = TopFacts(
        name="harbor",
        marks={"needs_input": 1, "waiting": 1, "completed": 1},
        today="$1.42",
        per_minute="38.2k",
        n_open=1,
        clock="14:12:08",
        requests=[asks],
    )
    at = TopList()
    lines = [plain(line) for line in top_frame(facts, at, [over, lead, asks], 80, 12)]
    assert lines[:8] == [
        " harbor       ○ 1 waiting                                              14:12:08",
        " today $1.42 · 38.2k tokens/min · 1 run open",
        " ◆ 1 needs you: sync-client waits 1m 04s, change a.py +1 -1            a answer",
        "   AGENT             STATE        NOW                              TIME    COST",
        "▸○ 7f3a timeouts     waiting      for 9: 3 done                 10m 30s   $2.14",
        " └ ◆ sync-client     needs you    change a.py +1 -1              2m 02s   $0.33",
        " ended in the last hour",
        " ✓ 7f3a login        done         it uses local time                41s   $0.03",
    ]
    assert lines[-1] == (
        " / filter  s sort  z fold  ↵ open  a answer  m msg  x cancel  q quit  ? keys"
    )
    at.wanted, at.is_filtering = "state:faild", True
    text = plain(top_frame(facts, at, [over, lead, asks], 80, 12)[-1])
    assert text.startswith(" / state:faild ")
    assert text.endswith("  0 of 3 rows. Did you mean failed?  esc clear")


def test_who_decided_elsewhere_is_told_and_a_done_edit_shows_its_diff_again() -> None:
    changes = DoneChanges()
    call = ToolCall(id="c", name="edit", arguments_json="{}")
    decided = Decided(question="q", turn=1, index=0, call=call, allow=True, by="Mira")
    assert changes.outcome(EDIT, "sync-client") == "sync-client no longer needs this."
    changes.take(Stepped(seq=1, entry=LogEntry(run="r", at=0, event=decided)))
    assert changes.outcome(EDIT, "sync-client") == "✓ done: allowed by Mira elsewhere"
    changes.expect(EDIT)
    returned = TextReturned(turn=1, index=0, call_id="c", name="edit", text="Edited")
    lines = changes.take(Stepped(seq=2, entry=LogEntry(run="r", at=0, event=returned)))
    assert lines is not None
    assert plain(lines[0]) == "✓ done: sync-client: change src/client.py  +4 -1"
    assert plain(lines[3]).endswith("- " + "        return self._pool.send(request, timeout)")
    assert changes.take(Stepped(seq=3, entry=LogEntry(run="r", at=0, event=returned))) is None


def test_a_question_with_choices_takes_nothing_else() -> None:
    q = question("question", tool="paint", text="Which colour?", choices=["dark\nred", "blue"])
    panel = request_panel(q)
    assert [(c.key, c.label) for c in panel.choices] == [("1", "dark red"), ("2", "blue")]
    target = answer(q, "1", "")
    assert isinstance(target, requests.AnswerRequest) and target.text == "dark\nred"
    many = request_panel({**q, "choices": [f"c{n}" for n in range(12)]})
    assert many.choices == (), "a digit names at most nine"
    assert "    c11" in panel_text(many)
