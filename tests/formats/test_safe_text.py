"""The one place that decides what of a foreign text is shown, and how what is hidden is spelled
out."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.formats.safe_text import MARKS, json_text, one_line, reveal, several_lines

SOURCE = Path(__file__).resolve().parents[2] / "src" / "retinue"
CONTROLS = [chr(n) for n in (*range(0x20), *range(0x7F, 0xA0)) if chr(n) not in "\n\t"]
TURNING = list("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
UNSEEN = list(
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u200b\u200c\u200d\u2060\u2061\u2064\u206a\u206f"
    "\u3164\ufe00\ufe0f\ufeff\uffa0\ufff9\ufffa\ufffb\U0001bca0\U0001d159\U0001d173\U00013430"
    "\U000e0001\U000e0041\U000e007f\U000e0100\U000e01ef"
)
SHAPELESS = list("\ue000\uf8ff\U000f0000\U00100000\ud800\udfff\udce9\ufffe\uffff\u0378\U0010ffff")
EVERY = [*CONTROLS, *TURNING, *UNSEEN, *SHAPELESS, "\u2028", "\u2029"]


def harmful(text: str, *, allowed: str = "") -> list[str]:
    """Characters of a text that a terminal obeys or a reader does not see."""
    bad = {c for c in EVERY if c not in allowed}
    return sorted({f"U+{ord(c):04X}" for c in text if c in bad or unicodedata.category(c) == "Cs"})


@pytest.mark.parametrize("c", EVERY, ids=lambda c: f"U+{ord(c):04X}")
def test_every_character_of_interest_is_taken_out_of_lines_and_spelled_out_for_decisions(
    c: str,
) -> None:
    text = f"be{c}fore"
    assert harmful(one_line(text)) == harmful(several_lines(text)) == harmful(reveal(text)) == []
    assert harmful(json_text(json.dumps(text, ensure_ascii=False))) == []
    assert json.loads(json_text(json.dumps(text, ensure_ascii=False))) == text
    assert "\\" in reveal(text) and c not in reveal(text)
    assert "\n" not in one_line(text)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("a\x1b[31mred\x1b[0m b", "ared b"),
        ("a\x9b31mred\x9b0m b", "ared b"),
        ("\x1b]0;title\x07x \x1b]8;;http://x\x1b\\y \x9d0;t\x9cz", "x y z"),
        (
            "\x1bPq#0\x1b\\a\x1b_apc\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d \x90q\x9ce\x9fapc\x9cf",
            "abcd ef",
        ),
        ("\x1b(0\x1b7\x1bc\x1b=x", "x"),
        ("end\x1b[", "end"),
        ("begun\x1b]0;and never ended", "begun0;and never ended"),
        ("\x1b\x1b[0m[31mx", "[31mx"),
        ("a\vb\fc\x85d\u2028e\u2029f\rg\r\nh", "a b c d e f g h"),
        ("  a \t b\u00a0\u3000c\u2800d ", "a b c d"),
        ("é" + "\u0301" * 40 + "!", "é" + "\u0301" * MARKS + "!"),
        ("a" + "\u20dd\u0488" * 40, "a" + "\u20dd\u0488" * (MARKS // 2)),
        ("\ue000\ud800\U0010ffff", "\ufffd\ufffd\ufffd"),
        ("\U0001f3f4\U000e0067\U000e0062\U000e007f", "\U0001f3f4"),
        ("a\u200db\u200cc", "abc"),
        ("👩\u200d👩\u200d👧 ❤\ufe0f\u200d🔥", "👩\u200d👩\u200d👧 ❤\u200d🔥"),
        ("👩\u200d\u200d\u200c👩", "👩\u200d👩"),
        ("\u0645\u06cc\u200c\u062e\u0648", "\u0645\u06cc\u200c\u062e\u0648"),
        ("ශ්\u200dරී क्\u200cष", "ශ්\u200dරී क्\u200cष"),
        ("\u0661\u06dd \u0600\u0661", "\u0661\u06dd \u0600\u0661"),
        ("日本語 ñ \u05e9\u05dc", "日本語 ñ \u05e9\u05dc"),
    ],
)
def test_a_line_holds_what_can_be_seen(text: str, output: str) -> None:
    assert one_line(text) == output


def test_several_lines_keep_their_lines_and_tabs() -> None:
    assert several_lines("a\tb\r\n\u202ec\rd\x0ce\n") == "a\tb\nc\nd\ne\n"
    assert several_lines("  two  spaces\u00a0") == "  two  spaces\u00a0"


def test_a_line_is_cut_between_characters() -> None:
    assert one_line("abcdef", 4) == "abc…" and one_line("abcd", 4) == "abcd"
    assert one_line("👩\u200d👩\u200d👧", 3) == "👩…"


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("safe\u202egpj.exe", "safe\\u202egpj.exe"),
        ("\x1b[2K\x7f\x9b", "\\x1b[2K\\x7f\\u009b"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("caf\udce9", "caf\\xe9"),
        ("printf 'a\\n'", "printf 'a\\n'"),
        ("literal \\u202e", "literal \\\\u202e"),
        ("\\\u202e", "\\\\\\u202e"),
        ("C:\\dir\\file", "C:\\dir\\file"),
        ("a\tb\nc\r", "a\tb\nc\\x0d"),
        ("no\u00a0break", "no\\u00a0break"),
        ("e" + "\u0301" * 6, "e" + "\u0301" * 4 + "\\u0301\\u0301"),
    ],
)
def test_a_decision_shows_what_is_there(text: str, output: str) -> None:
    assert reveal(text) == output


def test_a_name_is_one_line() -> None:
    assert reveal("two\nlines\t\\n", keep="") == "two\\nlines\\t\\\\n"


def unspelled(text: str) -> str:
    """The way back from `reveal`, for a test that no two texts look the same."""

    def back(match: re.Match[str]) -> str:
        slashes, escape = match[1], match[2]
        backslashes = "\\" * (len(slashes) // 2)
        if len(slashes) % 2 == 0:
            return backslashes + escape
        code = int(escape[1:], 16)
        return backslashes + chr(code + 0xDC00 if escape[0] == "x" and code >= 0x80 else code)

    return re.sub(r"(\\+)(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})", back, text)


@given(
    st.text(
        st.sampled_from([*"\\xu202e1b é\n\u0301", "\u202e", "\x1b", "\U000e0041", "\udce9"]),
        max_size=24,
    )
)
def test_what_is_revealed_leads_back_to_one_text(text: str) -> None:
    assert unspelled(reveal(text)) == text


@given(st.text(max_size=60))
def test_any_text_comes_out_harmless_and_is_not_changed_again(text: str) -> None:
    for line in (one_line(text), several_lines(text), reveal(text)):
        line.encode()
        assert harmful(line, allowed="\u200c\u200d") == []
    assert one_line(one_line(text)) == one_line(text)
    assert json.loads(json_text(json.dumps(text, ensure_ascii=False))) == text


HOME_MADE = re.compile(
    r"unicodedata\.category|\.isprintable\(|\\x1b|\\x9b|\\x7f-|\\u200b|\\u202[ae]|\\u206[069]|\"Cf\"|unicode_escape"
)
ALLOWED = {
    "formats/safe_text.py": "is that place",
    "formats/fair_cut.py": "finds where a character ends, and shows nothing",
    "formats/dispatch_address.py": "refuses an address that cannot be printed, and shows nothing",
    "formats/host_names.py": "folds the name of a host, and shows nothing",
    "core/secret_forms.py": "sees through what may stand between the letters of a secret",
    "core/secret_spellings.py": "writes a secret as others may write it",
    "sandbox/protected_paths.py": "folds the name of a file as a file system would, and shows "
    "nothing",
    "formats/toml_positions.py": "writes a string of TOML",
    "config/model_config.py": "refuses a name in a file",
    "config/value_checks.py": "refuses a value in a file",
    "models/providers.py": "refuses a key that no header can carry",
    "models/local_prompt.py": "takes apart the signs of a chat template, for a model",
    "tools/builtin/web_address.py": "refuses an address",
    "tools/families/delegate/task_arguments.py": "refuses an id",
    "server/a2a/push_notifications.py": "refuses a header value that cannot be sent",
    "server/mounting.py": "refuses a token that no header can carry",
    "cli/terminal/keyboard.py": "reads the keys of a terminal",
    "cli/terminal/terminal_style.py": "reads what a terminal says of its background",
    "cli/terminal/painter.py": "draws with sequences of ours",
    "cli/commands/diff.py": "colours the lines of a diff",
    "cli/commands/ps.py": "clears the screen",
}


def test_nobody_else_decides_what_of_a_text_is_shown() -> None:
    names = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "testing" not in path.parts and HOME_MADE.search(path.read_text(encoding="utf-8"))
    }
    assert names == set(ALLOWED), "use retinue.formats.safe_text, or say here why not"
