"""Tools of servers as tools of ours: names, filters, schemas, results, and what they are believed
to do."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import Queued, Run
from retinue.formats.safe_text import reveal, several_lines
from retinue.tools.base import Context
from retinue.tools.mcp_client.http_headers import (
    argument_headers,
    header_problem,
    header_value,
    marked,
)
from retinue.tools.mcp_client.mcp_tool import effects
from retinue.tools.mcp_client.protocol import ServerLimits, decode
from retinue.tools.mcp_client.result_content import answer
from retinue.tools.mcp_client.tool_names import names, plain_name
from retinue.tools.mcp_client.tool_schemas import TYPES, Unusable, normal
from tests.pictures import encoded, png
from tests.tools.mcp.client_support import fake, servers

PNG = encoded(png())
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(max_size=90), st.text(max_size=90)), unique=True, max_size=8))
def test_names_are_valid_unique_and_independent_of_order(keys: list[tuple[str, str]]) -> None:
    result = names(keys, {})
    assert all(NAME.fullmatch(name) and name.startswith("mcp__") for name in result.values())
    assert len(set(result.values())) == len(keys)
    assert names(keys[::-1], {}) == result


def test_no_server_can_take_over_the_name_of_anothers_tool() -> None:
    mine, theirs = ("a__b", "c"), ("a", "b__c")
    assert names([mine], {})[mine] == "mcp__a__b__c"
    both = names([mine, theirs], {})
    assert "mcp__a__b__c" not in both.values()
    aliased = names([("a", "x"), ("b", "y")], {("a", "x"): "search", ("b", "y"): "search"})
    assert "search" not in aliased.values()
    assert plain_name("s" * 80, "t") != plain_name("s" * 80, "u")
    forged = names([mine, theirs], {})[mine].removeprefix("mcp__a__")
    assert len(set(names([mine, theirs, ("a", forged)], {}).values())) == 3


def test_tools_are_filtered_and_aliased_as_configured(tmp_path: Path) -> None:
    about = tmp_path / "about"
    about.write_text("read_a\tA.\nread_b\tB.\nwrite\tC.\n")

    async def main() -> None:
        options = {
            "include": ("read_*", "none*"),
            "exclude": ("*_b",),
            "aliases": {"read_a": "peruse"},
        }
        async with servers(
            fake(f"about={about}", **options), fake(f"about={about}", name="all")
        ) as result:
            first, second = result.status()
            assert first.tools == ("peruse",)
            assert len(second.tools) == 3
            assert any("'none*'" in note for note in first.notes)
            resolved = {
                p: [t.schema.name for t in result.resolve(p)]
                for p in ("peruse", "mcp__all", "all/r*", "x/*", "*")
            }
            assert resolved["peruse"] == ["peruse"]
            assert resolved["mcp__all"] == [
                "mcp__all__read_a",
                "mcp__all__read_b",
                "mcp__all__write",
            ]
            assert resolved["all/r*"] == ["mcp__all__read_a", "mcp__all__read_b"]
            assert resolved["x/*"] == []
            assert len(resolved["*"]) == 4

    asyncio.run(main())


def test_a_tool_is_run_as_any_other() -> None:
    spec = RunSpec(id="r", request=RunRequest(agent="boss", task="t", cwd="w"), root="r")
    caller = Context(
        spec=spec,
        row=Run(id="r", state=Queued(), turn=2),
        call_id="c",
        index=1,
        key="k",
        called_at=5,
    )

    async def main() -> None:
        async with servers(fake()) as result:
            [tool] = result.resolve("fake/echo")
            assert (await tool.run(caller, {"text": "hi"})).text == "hi"  # type: ignore[union-attr]
            assert tool.summary({"text": "hi\nthere", "n": [1]}) == "fake: echo text=hi there n=…"
            assert (tool.server_name, tool.tool_name, tool.subject) == ("fake", "echo", "")
            assert (tool.risk, tool.restart) == ("execute", "unsafe")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("hints", "kind", "trust", "targets"),
    [
        ({"readOnlyHint": True}, "stdio", False, ("execute", "unsafe")),
        ({"readOnlyHint": True, "openWorldHint": False}, "stdio", True, ("read", "pure")),
        ({"readOnlyHint": True, "openWorldHint": True}, "stdio", True, ("network", "pure")),
        ({"readOnlyHint": True, "openWorldHint": False}, "http", True, ("network", "pure")),
        ({"idempotentHint": True}, "stdio", True, ("execute", "keyed")),
        ({"openWorldHint": True}, "stdio", True, ("execute", "unsafe")),
        ({"readOnlyHint": "true"}, "stdio", True, ("execute", "unsafe")),
        (None, "stdio", True, ("execute", "unsafe")),
        ([], "stdio", True, ("execute", "unsafe")),
    ],
)
def test_a_servers_word_about_its_tools_counts_only_where_it_is_trusted(
    hints: Any, kind: Any, trust: bool, targets: tuple[str, str]
) -> None:
    assert effects(hints, kind, trust) == targets


def test_references_are_followed_inside_a_schema_and_nowhere_else() -> None:
    schema = {
        "$schema": "x",
        "$defs": {
            "p": {
                "type": "object",
                "properties": {"next": {"$ref": "#/$defs/p"}, "v": {"type": "string"}},
            }
        },
        "properties": {
            "a": {"$ref": "#/$defs/p", "description": "mine"},
            "b": {"$ref": "file:///etc/passwd"},
        },
        "required": ["a", "ghost"],
    }
    result = normal(schema, 1 << 16)
    assert result["type"] == "object"
    assert result["required"] == ["a"]
    assert "$" not in json.dumps(result)
    a = result["properties"]["a"]
    assert (a["type"], a["description"]) == ("object", "mine")
    assert a["properties"]["v"] == {"type": "string"}
    assert result["properties"]["b"] == {}


def test_types_that_were_left_out_are_told_where_only_one_can_be_meant() -> None:
    schema = {
        "properties": {
            "e": {"enum": ["a", "b"]},
            "o": {"properties": {}},
            "l": {"items": {}},
            "x": True,
            "n": False,
        }
    }
    properties = normal(schema, 1 << 16)["properties"]
    assert (properties["e"]["type"], properties["o"]["type"], properties["l"]["type"]) == (
        "string",
        "object",
        "array",
    )
    assert properties["x"] == {}
    assert "n" not in properties


def test_alternatives_at_the_root_become_one_object() -> None:
    parts = [
        {"properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"properties": {"b": {}}, "required": ["b"]},
    ]
    either, both = normal({"anyOf": parts}, 1 << 16), normal({"allOf": parts}, 1 << 16)
    assert set(either["properties"]) == {"a", "b"}
    assert "required" not in either
    assert both["required"] == ["a", "b"]
    assert "anyOf" not in either


def test_a_schema_that_no_model_can_use_leaves_its_tool_out() -> None:
    with pytest.raises(Unusable, match="name"):
        normal({"properties": {"a b": {}}, "required": ["a b"]}, 1 << 16)
    assert normal({"properties": {"a b": {}, "c": {}}}, 1 << 16)["properties"] == {"c": {}}
    with pytest.raises(Unusable, match="larger than 65536 bytes"):
        normal({"properties": {f"p{n}": {"description": "x" * 500} for n in range(500)}}, 1 << 16)
    bomb: dict[str, Any] = {"$defs": {"a0": {}}, "properties": {"a": {"$ref": "#/$defs/a20"}}}
    for n in range(20):
        pair = {"$ref": f"#/$defs/a{n}"}
        bomb["$defs"][f"a{n + 1}"] = {"properties": {"l": pair, "r": pair}}
    with pytest.raises(Unusable):
        normal(bomb, 1 << 16)


def repeated(part: dict[str, Any], n: int) -> dict[str, Any]:
    """A schema that names one part again and again."""
    return {"$defs": {"D": part}, "properties": {f"p{i}": {"$ref": "#/$defs/D"} for i in range(n)}}


@pytest.mark.parametrize(
    "part",
    [
        {"description": "\u00e9\u202e" * 60_000},
        {"enum": ["x" * 200 + str(i) for i in range(1_000)]},
        {"default": ["x" * 100] * 1_500},
        {"const": "x" * 100_000},
        {"properties": {f"{'k' * 50}{i}": True for i in range(3_000)}},
    ],
    ids=["description", "enum", "default", "const", "properties"],
)
def test_a_part_that_is_named_again_and_again_is_not_copied_again_and_again(
    part: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took a minute for one tool, in which the host did nothing else."""
    from retinue.tools.mcp_client import tool_schemas as schemas

    looked, rest = 0, schemas.several_lines  # type: ignore[attr-defined]

    def several_lines(text: str) -> str:
        nonlocal looked
        looked += len(text)
        return rest(text)

    sizes: list[int] = []

    def encode(value: Any) -> bytes:
        sizes.append(len(data := kept_encode(value)))
        return data

    kept_encode = schemas.encode  # type: ignore[attr-defined]
    monkeypatch.setattr(schemas, "several_lines", several_lines)
    monkeypatch.setattr(schemas, "encode", encode)
    with pytest.raises(Unusable, match="too large"):
        normal(repeated(part, 1_000), 1 << 16)
    most = 4 * (1 << 16) + len(kept_encode(part))
    assert looked < 8 * most and sum(sizes) <= most


@pytest.mark.parametrize("wrong", [{}, [], ["a"], 5, None, True])
def test_what_is_required_and_has_no_name_is_left_out(wrong: Any) -> None:
    schema = {"properties": {"a": True, "b": {"properties": {"c": {}}, "required": [wrong, "c"]}}}
    result = normal({**schema, "required": ["a", wrong], "anyOf": [{"required": [wrong]}]}, 1 << 16)
    assert result["required"] == ["a"] and result["properties"]["b"]["required"] == ["c"]


@pytest.mark.parametrize("pattern", ["([", "(?P<a", "a{99999999999999999999}", "(" * 900, "\\p{L}"])
def test_a_pattern_that_providers_cannot_compile_is_left_out(pattern: str) -> None:
    parts = {
        "a": {"type": "string", "pattern": pattern},
        "b": {"type": "string", "pattern": "^[[a]"},
    }
    properties = normal({"properties": parts}, 1 << 16)["properties"]
    assert properties == {"a": {"type": "string"}, "b": parts["b"]}


def test_a_type_stands_once_in_a_list_of_types() -> None:
    schema = normal({"properties": {"a": {"type": ["string", "string", "null"]}}}, 1 << 16)
    assert schema["properties"]["a"] == {"type": ["string", "null"]}


def test_thousands_of_marked_arguments_are_read_once() -> None:
    parts = {
        f"a{n}": {"type": "string", "x-mcp-header": f"H{n // 2 * 2 if n < 10 else n}"}
        for n in range(5_000)
    }
    result = marked({"properties": parts})
    assert len(result) == 4_990 and ("a10",) in result and ("a0",) not in result


WORDS = [
    "type",
    "properties",
    "items",
    "$ref",
    "anyOf",
    "allOf",
    "required",
    "enum",
    "a",
    "description",
    "pattern",
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner,
        )
        | st.fixed_dictionaries(
            {"properties": st.dictionaries(st.sampled_from("ab"), inner), "required": inner}
        )
        | st.builds(
            lambda v: {"properties": {"a": v}, "required": ["a", v], "$ref": "#/properties/a"},
            inner,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(JSON)
def test_whatever_a_server_calls_a_schema_becomes_one(value: Any) -> None:
    try:
        schema = normal(value, 1 << 16)
    except Unusable:
        return
    import jsonschema

    assert schema["type"] == "object"
    for part in schema["properties"].values():
        named = part.get("type")
        assert named is None or named in TYPES or set(named) <= set(TYPES)
    jsonschema.Draft202012Validator.check_schema(schema)


@settings(deadline=None)
@given(JSON)
def test_whatever_a_server_calls_a_result_becomes_an_answer(value: Any) -> None:
    result = answer(
        {"content": [value, {"type": "resource", "resource": value}], "structuredContent": value},
        ServerLimits(),
    )
    assert isinstance(result.text, str)
    result.text.encode()


def test_all_kinds_of_content_are_told() -> None:
    content = [
        {"type": "text", "text": "one"},
        {"type": "image", "mimeType": "image/png", "data": PNG},
        {"type": "image", "mimeType": "image/tiff", "data": "AAAA"},
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
        {"type": "resource_link", "uri": "file:///a", "name": "A", "mimeType": "text/plain"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "inside"}},
        {
            "type": "resource",
            "resource": {"uri": "file:///c", "mimeType": "image/png", "blob": PNG},
        },
        {"type": "hologram"},
    ]
    result = answer({"content": content, "isError": True}, ServerLimits())
    assert result.error
    assert [i.media_type for i in result.images] == ["image/png", "image/png"]
    lines = result.text.split("\n")
    assert lines[0] == "one"
    assert "[image/tiff, not shown]" in lines
    assert "[image/png, damaged]" in lines
    assert "[audio content (audio/wav) is not shown]" in lines
    assert "[resource A: file:///a, text/plain]" in lines
    assert "inside" in lines
    assert "[hologram content (no type) is not shown]" in lines


def test_structured_content_is_told_once() -> None:
    data = {"a": [1, 2]}
    block = {"type": "text", "text": json.dumps(data, indent=2)}
    assert (
        answer({"content": [block], "structuredContent": data}, ServerLimits()).text
        == block["text"]
    )
    assert answer({"content": [], "structuredContent": data}, ServerLimits()).text == '{"a":[1,2]}'
    other = answer(
        {"content": [{"type": "text", "text": "two numbers"}], "structuredContent": data},
        ServerLimits(),
    )
    assert other.text == 'two numbers\n{"a":[1,2]}'
    same = {"content": [{"type": "text", "text": "hi"}], "structuredContent": {"result": "hi"}}
    assert answer(same, ServerLimits()).text == "hi"


def test_results_are_capped() -> None:
    many = answer({"content": [{"type": "text", "text": "x"}] * 5_000}, ServerLimits()).text
    assert many.endswith("[3000 more content blocks were omitted]")
    limits = ServerLimits(result_chars=10, images=1, image_bytes=200)
    assert answer({"content": [{"type": "text", "text": "x" * 50}]}, limits).text.startswith(
        "x" * 10 + "\n[truncated: 40 of 50"
    )
    pictures = [{"type": "image", "mimeType": "image/png", "data": PNG}] * 3
    assert len(answer({"content": pictures}, limits).images) == 1
    large = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 1_000).decode()
    assert (
        answer(
            {"content": [{"type": "image", "mimeType": "image/png", "data": large}]}, limits
        ).images
        == ()
    )


@settings(deadline=None)
@given(st.text(max_size=40))
def test_headers_are_written_as_the_official_client_writes_them(text: str) -> None:
    from mcp.shared.inbound import decode_header_value, encode_header_value

    assert header_value(text) == encode_header_value(text)
    assert decode_header_value(header_value(text)) == text


def test_marked_arguments_go_into_headers_as_with_the_official_client() -> None:
    from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map

    inner = {"type": "object", "properties": {"id": {"type": "integer", "x-mcp-header": "Item"}}}
    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": inner,
            "plain": {"type": "string"},
        },
    }
    args = {"region": "k\u00f6ln", "deep": {"id": 7}, "plain": "x"}
    assert marked(schema) == x_mcp_header_map(schema)
    assert argument_headers(marked(schema), args) == mcp_param_headers(
        x_mcp_header_map(schema), args
    )
    evil = {
        "type": "object",
        "properties": {"a": {"type": "string", "x-mcp-header": "A\r\nHost: evil"}},
    }
    assert marked(evil) == {}


@settings(deadline=None)
@given(
    st.text(
        alphabet=st.characters(codec=None, categories=["Cf", "Cc", "Cs", "Lu", "Mn", "Zs"]),
        max_size=30,
    )
)
def test_shown_texts_can_be_seen_and_stored(text: str) -> None:
    for output in (reveal(text), several_lines(text)):
        output.encode()
        assert not re.search(
            "[\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\x00-\x08\x1b]", output
        )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        "[" * 5_000,
        "[" * 200 + "]" * 200,
        "1e999",
        '{"a": NaN}',
        "9" * 5_000,
        '{"a":' * 300 + "1" + "}" * 300,
    ],
)
def test_json_that_could_do_harm_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text.encode())


def test_a_tool_that_wants_an_impossible_header_is_named_and_why() -> None:
    def schema(**marks: Any) -> dict[str, Any]:
        fields = {
            name: {"type": kind, "x-mcp-header": mark} for name, (kind, mark) in marks.items()
        }
        return {"type": "object", "properties": fields}

    good = schema(a=("string", "Region"), b=("integer", "Size"))
    assert header_problem(good) == "" and header_problem({"type": "object"}) == ""
    for bad in (
        schema(a=("string", "")),
        schema(a=("number", "Size")),
        schema(a=("object", "Data")),
        schema(a=("string", "My Region")),
        schema(a=("string", 3)),
        schema(a=("string", "Region"), b=("string", "region")),
        {"type": "object", "properties": {"in": schema(a=("array", "Items"))}},
    ):
        assert header_problem(bad).startswith("x-mcp-header"), bad
