"""Every door of the program, on a terminal: nothing of a foreign text is obeyed, turned around or
invisible there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retinue.core.messages import AssistantMessage
from retinue.errors import ModelRejected
from retinue.testing import call
from tests.cli.private_home import PrivateHome, private_home
from tests.cli.tty import tty
from tests.formats.test_safe_text import EVERY

SEQUENCES = "\x1b[99;98H\x1b]0;owned\x07\x1bPq\x1b\\\x9b97;96H\x9d0;owned\x9c\x1b]8;;http://x\x1b\\"
CHARACTERS = "".join(c for c in EVERY if not "\ud800" <= c <= "\udfff" and c not in "\0\r\x1b")
EVIL = f"begin{SEQUENCES}middle{CHARACTERS}a\u0301\u0301\u0301\u0301\u0301\u0301\u0301end"
TYPED = EVIL.replace("\ufffe", "").replace("\uffff", "")
OURS = re.compile(
    r"\x1b(?:\[[0-9;?<>=!$]*[A-Za-z~]|[78=>M]|\([B0]|\[\?[0-9;]*[a-z$]|\]22;default\x07)"
    r"|\x1b\[[0-9 ]*q|\x1b\]11;\?(?:\x07|\x1b\\)"
)
TITLE = re.compile(r"\x1b\]2;([^\x1b\x07]*)(?:\x07|\x1b\\)")
"""That of the window is ours; what is in it must be as tame as the rest."""
ALLOWED = set("\r\n\t\x07")
HARMFUL = set(EVERY) - ALLOWED - {"\x1b"}


def evil_model(request: Any) -> Any:
    turn = sum(type(m).__name__ == "AssistantMessage" for m in request.messages)
    if request.messages[0].text.startswith("Ask"):
        return "Written." if turn else call("write", path=f"dir/{TYPED}.txt", content=TYPED)
    if turn:
        return EVIL
    return AssistantMessage(text=EVIL, calls=(call("read", path=TYPED),))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateHome]:
    with private_home(tmp_path_factory.mktemp("hostile"), evil_model) as home:
        agents = home.project / ".retinue" / "agents"
        agents.mkdir(parents=True)
        described = json.dumps(EVIL)
        (agents / "evil.md").write_text(
            f"---\nname: evil\ndescription: {described}\n---\nDo it {EVIL}\n", "utf-8"
        )
        home.ok("run", "-q", "--family", "none", "-n", f"job{TYPED}", f"Do {TYPED}")
        yield home


def check(raw: str, *, is_line: bool = True) -> None:
    assert "\x1b[99;98H" not in raw and "\x1b]0;owned" not in raw
    rest = raw if is_line else OURS.sub("", TITLE.sub(r"\1", raw))
    assert "\x1b" not in rest, [
        rest[max(0, m.start() - 20) : m.end() + 20] for m in re.finditer("\x1b", rest)
    ][:3]
    obeyed = (
        HARMFUL if is_line else HARMFUL - {"\b"}
    )  # prompt_toolkit moves the cursor back with it
    assert {f"U+{ord(c):04X}" for c in rest if c in obeyed} == set()
    assert not re.search("\u0301{5}", rest), "a tower of marks"


LINES = [
    ("logs",),
    ("logs", "--tools"),
    ("logs", "--jsonl"),
    *(("export", "--format", form) for form in ("md", "jsonl", "stream-json", "perfetto", "html")),
    ("export", "--format", "otlp", "--content"),
    ("show",),
    ("show", "--json"),
    ("ps",),
    ("ps", "--json"),
    ("ps", "--tree"),
    ("replay",),
    ("replay", "--json"),
    ("agents", "list"),
    ("agents", "list", "--json"),
    ("agents", "show", "evil"),
    ("agents", "lint"),
    ("trust", "--check"),
    ("doctor", "--offline", "--color", "never"),
    ("doctor", "--offline", "--json"),
    ("config", "--defaults"),
    ("attach",),
    ("show", TYPED),
    ("run", "-m", TYPED, "x"),
    ("run", "--agent", TYPED, "x"),
]


@pytest.mark.parametrize(
    "arguments", LINES, ids=lambda a: " ".join(a)[:30].encode("ascii", "ignore").decode()
)
def test_what_a_command_writes_to_a_terminal_can_be_seen(
    home: PrivateHome, arguments: tuple[str, ...]
) -> None:
    with tty({**home.env, "NO_COLOR": "1"}, home.project, *arguments) as screen:
        screen.ended()
        assert "Internal error" not in screen.text
        check(screen.text, is_line=arguments[0] != "attach")
        if (
            arguments[0] in ("logs", "export", "show")
            and len(arguments) < 4
            and TYPED not in arguments
        ):
            assert "begin" in screen.text and "middle" in screen.text, "the text itself is there"


@pytest.mark.parametrize("form", ["md", "html"])
def test_what_is_exported_to_be_read_is_harmless_in_a_file_too(
    home: PrivateHome, form: str
) -> None:
    text = home.ok("export", "--format", form)
    check(text)
    assert "begin" in text and "middle" in text, "the text itself is there"


@pytest.mark.parametrize(
    "arguments", [("logs", "--jsonl"), ("export", "--format", "jsonl"), ("show", "--json")]
)
def test_json_has_the_same_values_and_hides_nothing(
    home: PrivateHome, arguments: tuple[str, ...]
) -> None:
    text = home.ok(*arguments)
    check(text)
    assert any(EVIL in result for line in text.split("\n") for result in strings(json.loads(line)))


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


def test_an_answer_is_raw_in_a_pipe_and_tame_on_a_terminal(home: PrivateHome) -> None:
    assert "\x1b]0;owned\x07" in home.ok("run", "-q", "--family", "none", "Do it")
    with tty(home.env, home.project, "run", "-q", "--family", "none", "Do it") as screen:
        assert screen.ended() == 0
        assert "begin" in screen.text
        check(screen.text, is_line=False)


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_the_view_of_a_run_is_tame_and_a_question_shows_what_hides_in_it(
    home: PrivateHome, term: str
) -> None:
    env = {**home.env, "TERM": term}
    with tty(
        env, home.project, "run", "--family", "none", "-n", TYPED, f"Ask {TYPED}", size=(100, 40)
    ) as screen:
        if term == "dumb":
            screen.until("or a reason to deny:")
            assert (
                "\\u202e" in screen.text
                and "\\x9b" not in screen.text
                and "\\u009b97;96H" in screen.text
            )
            screen.type("no\n")
        else:
            screen.until("answer")
            screen.type("a")
            screen.until("Choose, then press")
            assert "\\u202e" in screen.text and "\\x1b[99;98H" in screen.text
            screen.type("n")
            screen.until("denies")
            screen.type("\r")
        screen.ended()
        check(screen.text, is_line=False)


def test_a_chat_is_tame(home: PrivateHome) -> None:
    prompt = "you \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
    env = {**home.env, "PROMPT_TOOLKIT_NO_CPR": "1"}
    with tty(env, home.project, "chat", "--family", "none") as screen:
        screen.until(prompt)
        for text, answer in (
            ("Do it", "\x1b[?2004l"),  # the prompt is left, and comes again after the answer
            ("/agents", " main "),
            ("/show", "next "),
        ):
            start = len(screen.raw)
            screen.type(f"{text}\r")
            screen.until(prompt, screen.until(answer, start))
        screen.type("/quit\r")
        assert screen.ended() == 0
        check(screen.text, is_line=False)


def test_top_is_tame(home: PrivateHome) -> None:
    with tty(home.env, home.project, "top", size=(140, 30)) as screen:
        screen.until("begin")
        screen.type("\r")
        screen.until("turn")
        screen.type("q")
        screen.until("begin")
        screen.type("q")
        assert screen.ended() == 0
        check(screen.text, is_line=False)


def test_the_list_of_what_is_asked_shows_the_call_whole(home: PrivateHome) -> None:
    id = home.ok(
        "run", "--bg", "--family", "none", "-n", TYPED, "--permission-prompts", "wait", "Ask it"
    )
    home.until(lambda: "write" in home.ok("approve"))
    with tty({**home.env, "NO_COLOR": "1"}, home.project, "approve") as screen:
        assert screen.ended() == 0
        check(screen.text)
        assert "\\u202e" in screen.text and "\\U000e0041" in screen.text
    home.ok("approve", id, "no")
    home.ok("wait", id, "--timeout", "60")


def test_an_error_of_a_server_is_tame(tmp_path: Path) -> None:
    def refuse(request: Any) -> Any:
        return ModelRejected(EVIL, kind="invalid_request")

    with (
        private_home(tmp_path, refuse) as home,
        tty(home.env, home.project, "run", "--family", "none", "x") as screen,
    ):
        assert screen.ended() == 1
        assert "begin" in screen.text
        check(screen.text, is_line=False)


BREAKS = "\nFORGED\u2028FORGED\rFORGED\x85FORGED\x0bFORGED"
FORGER = f"a{BREAKS}"
FORGED = [
    ("cancel", "latest"),
    ("wait", "latest"),
    ("budget", "latest"),
    ("budget", "latest", "--add-usd", "1"),
    ("send", "latest", "x"),
    ("ps", "--all", "--tree"),
    ("logs",),
    ("logs", "--tools"),
    ("replay",),
    ("mcp", "list", "--mcp-config", "mcp.json"),
    ("mcp", "approve", FORGER, "--mcp-config", "mcp.json"),
    ("run", "-q", "--mcp-config", "mcp.json", "x"),
    ("run", "--store", f"/proc/{FORGER}/x.db", "x"),
    ("backup", f"/proc/{FORGER}"),
    ("fork", "latest", "--at", FORGER, "x"),
    ("rm", "latest"),
]


@pytest.fixture(scope="module")
def forger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateHome]:
    def script(request: Any) -> Any:
        turn = sum(type(m).__name__ == "AssistantMessage" for m in request.messages)
        return (
            "Done."
            if turn
            else AssistantMessage(
                text=FORGER, calls=(call(FORGER, x=FORGER), call("read", path=FORGER))
            )
        )

    with private_home(tmp_path_factory.mktemp("forger"), script) as home:
        servers = {FORGER: {"command": f"/no/such/{FORGER}"}, "y": {"command": 5, FORGER: 1}}
        (home.project / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        home.ok("run", "-q", "--family", "none", "-n", FORGER, f"Do {FORGER}")
        yield home


@pytest.mark.parametrize(
    "arguments", FORGED, ids=lambda a: " ".join(a)[:24].encode("ascii", "ignore").decode()
)
def test_nothing_foreign_begins_a_line_of_ours(
    forger: PrivateHome, arguments: tuple[str, ...]
) -> None:
    """A name of two lines would say on the second whatever it likes, in our words."""
    with tty({**forger.env, "NO_COLOR": "1"}, forger.project, *arguments) as screen:
        screen.ended()
        assert "Internal error" not in screen.text
        assert [
            line for line in re.split("[\r\n]+", screen.text) if line.startswith("FORGED")
        ] == []


def test_names_of_tools_are_tame_in_pages_that_are_exported(tmp_path: Path) -> None:
    """A model can call what no tool is called."""
    name = f"x{SEQUENCES}`</p>**{FORGER}\u202e"

    def script(request: Any) -> Any:
        return (
            "Done."
            if any(type(m).__name__ == "ToolMessage" for m in request.messages)
            else call(name)
        )

    with private_home(tmp_path, script) as home:
        home.ok("run", "-q", "--family", "none", "Do it")
        for form in ("html", "md"):
            text = home.ok("export", "--format", form)
            check(text)
            titles = [
                line
                for line in text.split("\n")
                if "class=" in line or line.startswith("`") or "calls" in line
            ]
            assert any("FORGED" in line for line in titles)
            assert form == "html" or not re.search(
                "^FORGED", text.replace("{}", ""), re.MULTILINE
            ), text
