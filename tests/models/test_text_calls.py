"""Calls that a model wrote as text are found in all the ways models write them, and nowhere
else."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.models import text_calls
from retinue.models.text_calls import TextPreview, recover
from retinue.models.written_object import MAX_CALL

NAMES = ("weather", "add", "send-mail")
PARIS = ("weather", {"city": "Paris"})
OSLO = ("weather", {"city": "Oslo"})
SUM = ("add", {"a": 1, "b": 2})
PARIS_JSON = '{"name": "weather", "arguments": {"city": "Paris"}}'
OSLO_JSON = '{"name": "weather", "arguments": {"city": "Oslo"}}'


def found(text: str, *, is_cut: bool = False) -> list[tuple[str, object]]:
    return [
        (call.name, json.loads(call.args)) for call in recover(text, NAMES, is_cut=is_cut).calls
    ]


@pytest.mark.parametrize(
    ("text", "calls", "rest"),
    [
        (f"<tool_call>{PARIS_JSON}</tool_call>", [PARIS], ""),
        (f"<tool_call>\n{PARIS_JSON}\n</tool_call>\n", [PARIS], ""),
        (
            f"I will look.\n<tool_call>{PARIS_JSON}</tool_call> Wait.",
            [PARIS],
            "I will look.\nWait.",
        ),
        (
            f"<tool_call>{PARIS_JSON}</tool_call><tool_call>{OSLO_JSON}</tool_call>",
            [PARIS, OSLO],
            "",
        ),
        (f"<tool_call>[{PARIS_JSON}, {OSLO_JSON}]</tool_call>", [PARIS, OSLO], ""),
        (f"<tool_call>{PARIS_JSON}\n{OSLO_JSON}</tool_call>", [PARIS, OSLO], ""),
        (f"<tool_call>\n```json\n{PARIS_JSON}\n```\n</tool_call>", [PARIS], ""),
        (f"<tool_call>{PARIS_JSON}", [PARIS], ""),
        (f"<function_call>{PARIS_JSON}</function_call>", [PARIS], ""),
        (f"[TOOL_CALLS][{PARIS_JSON}]", [PARIS], ""),
        ('<function=weather>{"city": "Paris"}</function>', [PARIS], ""),
        (f"Here:\n```json\n{PARIS_JSON}\n```\nDone.", [PARIS], "Here:\nDone."),
        (f"```\n{PARIS_JSON}\n```", [PARIS], ""),
        (f"```tool_call\n[{PARIS_JSON},\n{OSLO_JSON}]\n```", [PARIS, OSLO], ""),
        (PARIS_JSON, [PARIS], ""),
        (f"Let me see.\n  {PARIS_JSON}\nThen I know.", [PARIS], "Let me see.\nThen I know."),
        (f"{PARIS_JSON}\n{OSLO_JSON}", [PARIS, OSLO], ""),
        ('{"tool_calls": [' + PARIS_JSON + "]}", [PARIS], ""),
        ('{"tool_call": ' + PARIS_JSON + "}", [PARIS], ""),
        ('{"id": "1", "type": "function", "function": ' + PARIS_JSON + "}", [PARIS], ""),
        ('{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\"}"}', [PARIS], ""),
        ('{"tool": "weather", "parameters": {"city": "Paris"}}', [PARIS], ""),
        ('{"action": "weather", "action_input": {"city": "Paris"}}', [PARIS], ""),
        ('{"name": "send-mail", "args": null}', [("send-mail", {})], ""),
        ('<tool_call>{"name": "send-mail"}</tool_call>', [("send-mail", {})], ""),
        ('<tool_call>{"name": "weather", "city": "Paris"}</tool_call>', [PARIS], ""),
    ],
)
def test_a_call_is_found_however_it_was_written(
    text: str, calls: list[tuple[str, object]], rest: str
) -> None:
    assert found(text) == calls
    assert recover(text, NAMES).text == rest


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ('{"name": "weather", "arguments": {"city": "Paris",},}', PARIS),
        ("{'name': 'weather', 'arguments': {'city': 'Paris'}}", PARIS),
        ('{"name": "weather", "arguments": {"city": "Paris"}', PARIS),
        ('<tool_call>{"name": "weather", "arguments": {"city": "Paris"}</tool_call>', PARIS),
        ('{"name": "weather", "arguments": {"city": "a\nb"}}', ("weather", {"city": "a\nb"})),
        (
            "{'name': 'weather', 'arguments': {'city': True, 'x': None}}",
            ("weather", {"city": True, "x": None}),
        ),
        (
            "{'name': 'weather', 'arguments': {'city': 'L\\'Aquila \"x\"'}}",
            ("weather", {"city": 'L\'Aquila "x"'}),
        ),
        (
            '{"name": "weather", "arguments": {"city": "C:\\dir \\d"},}',
            ("weather", {"city": "C:\\dir \\d"}),
        ),
    ],
)
def test_json_that_is_a_little_broken_is_read_all_the_same(
    text: str, call: tuple[str, object]
) -> None:
    assert found(text) == [call]


@pytest.mark.parametrize(
    "text",
    [
        "The weather is fine.",
        '{"name": "delete", "arguments": {"path": "x weather"}}',
        '{"name": "weather"}',
        '{"name": "Ada", "tool": "weather", "arguments": {}}',
        'Use {"name": "weather", "arguments": {"city": "Paris"}} to ask.',
        '{"name": "weather", "arguments": ["Paris"]}',
        '{"name": "weather", "arguments": "Paris"}',
        '{"name": "weather", "arguments": {"city": NaN}}',
        '{"name": "weather", "arguments": {"city": 1e999}}',
        f'[{PARIS_JSON}, {{"name": "other", "arguments": {{}}}}]',
        '{"name": "weather", "arguments": {"city": "Pa',
        '{"name": "weather", "arguments": {"city": [1}}',
        "<tool_call>weather</tool_call>",
        '{"": [], "x": "weather"}',
        "weather " + "[" * 2_000,
        "weather\n" + '{"a":' * 2_000,
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert recover(text, NAMES) == (text, ())


def test_a_call_that_was_cut_is_not_completed() -> None:
    text = '{"name": "weather", "arguments": {"city": "Paris"}'
    assert found(f"{PARIS_JSON}\n{text}", is_cut=True) == [PARIS]
    assert recover(text, NAMES, is_cut=True) == (text, ())


def test_a_model_that_loops_calls_once() -> None:
    again = f"<tool_call>{PARIS_JSON}</tool_call>\n"
    assert found(again * 5) == [PARIS]
    assert found(again + f"<tool_call>{OSLO_JSON}</tool_call>" + again) == [PARIS, OSLO, PARIS]


def test_half_a_surrogate_pair_does_not_survive() -> None:
    (call,) = recover('{"name": "weather", "arguments": {"city": "\\ud800"}}', NAMES).calls
    assert json.loads(call.args) == {"city": "\ufffd"}


def test_no_text_is_read_for_long() -> None:
    lines = 'weather\n{"name": "weather", "x": [{\n' * (MAX_CALL // 10)
    deep = "weather " + "\n[{'a': " * 50_000
    slashes = "weather\n{'" + "\\" * 200_000
    for text in (
        lines,
        deep,
        slashes,
        "weather" + "<tool_call>" * 50_000,
        "weather" + "```\n" * 50_000,
    ):
        start = time.process_time()
        recover(text, NAMES)
        assert time.process_time() - start < 3


WORDS = [
    "weather",
    "name",
    "arguments",
    '"name": "weather"',
    '"arguments": {"a": 1}',
    PARIS_JSON,
    "[TOOL_CALLS]",
    "word",
]
PIECES = st.sampled_from(
    ["<tool_call>", "</tool_call>", "```json\n", "```", *"\n {}[]\"',:\\<`", *WORDS]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)


@given(TEXTS | st.text())
def test_whatever_is_written_the_calls_are_to_known_tools_with_objects(text: str) -> None:
    for is_cut in (False, True):
        rest, calls = recover(text, NAMES, is_cut=is_cut)
        assert all(c.name in NAMES and isinstance(json.loads(c.args), dict) for c in calls)
        assert calls or rest == text


@given(
    st.dictionaries(
        st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text())
    )
)
def test_arguments_come_through_unchanged(arguments: dict[str, object]) -> None:
    call = json.dumps({"name": "add", "arguments": arguments})
    for text in (call, f"<tool_call>{call}</tool_call>", f"Now:\n```json\n{call}\n```\nSo."):
        (found_call,) = recover(text, NAMES).calls
        assert json.loads(found_call.args) == json.loads(
            text_calls.clean(json.dumps(arguments, ensure_ascii=False))  # type: ignore[attr-defined]
        )


@given(TEXTS, st.data())
def test_a_preview_shows_all_text_in_order_and_nothing_of_a_call(
    text: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    preview = TextPreview()
    output = "".join(
        preview.feed(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)
    )
    opened = text_calls._OPEN.search(text)
    assert text.startswith(output)
    assert len(output) <= (opened.start() if opened else len(text))
    assert output + preview.rest() == text


def test_words_are_shown_as_they_come() -> None:
    preview = TextPreview()
    assert [preview.feed(part) for part in ("The", " sky", " is <", "b>blue", "\n", "{")] == [
        "The",
        " sky",
        " is ",
        "<b>blue",
        "\n",
        "",
    ]
