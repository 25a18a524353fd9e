"""A long output is cut at a number of bytes, never inside a character; the cut says where the whole
is."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue import Limits, Retinue
from retinue.core.values import Artifact
from retinue.testing import VirtualClock, call
from retinue.tools.families.subagent.subagent_output import MARK, cut
from tests.api.scripted_agents import on_virtual_time
from tests.families.subagent_world import Stage, many, one, played, results

WHOLE = re.compile(r"\n\(full text, (\d+) bytes, in artifact ([0-9a-f]{64})\)\Z")


async def summary(
    text: str, rules: Limits | None = None, **settings: Any
) -> tuple[dict[str, Any], bytes]:
    """The result of a child that says `text`, and the artifact that it names."""
    stage = Stage(one("a"), sums={"a": text}, **settings)
    async with Retinue(clock=VirtualClock(), limits=rules) as retinue:
        output = await played(retinue, await retinue.spawn(stage.lead, "Go."))
        named = re.search("[0-9a-f]{64}", output.result["output"])
        return output.result, await retinue.artifact(named[0]) if named else b""


@on_virtual_time
async def test_an_output_of_4096_bytes_is_shown_whole() -> None:
    for text in ("x" * 4096, "é" * 2048, "😀" * 1024):
        assert len(text.encode()) == 4096
        result, _ = await summary(text)
        assert (result["output"], result["truncated"]) == (text, False)


@on_virtual_time
async def test_an_output_of_4097_bytes_is_cut_at_4096_and_marked() -> None:
    result, whole = await summary("x" * 4097)
    assert result["truncated"] is True
    assert result["output"].startswith("x" * 4096 + "\n... (truncated)\n")
    assert result["output"].partition("...")[0].count("x") == 4096
    assert result["success"] is True
    assert result["metadata"]["completion_status"] == "complete"
    assert whole == b"x" * 4097


@pytest.mark.parametrize("before", range(5))
@on_virtual_time
async def test_a_cut_never_divides_a_character(before: int) -> None:
    for letter in ("é", "€", "😀"):
        text = "x" * before + letter * 4096
        result, whole = await summary(text)
        head, _, _ = result["output"].partition(MARK)
        assert text.startswith(head) and "\ufffd" not in head
        assert 4096 - len(letter.encode()) < len(head.encode()) <= 4096
        assert whole.decode() == text


@on_virtual_time
async def test_a_cut_says_how_long_the_whole_is_and_where() -> None:
    text = "ä" * 5_000
    result, whole = await summary(text)
    match = WHOLE.search(result["output"])
    assert match is not None and int(match[1]) == len(whole) == 10_000


@on_virtual_time
async def test_whoever_got_a_cut_output_can_read_on() -> None:
    def read_on(request: Any) -> Any:
        where = WHOLE.search(msgspec.json.decode(request.messages[-1].text)["output"])
        assert where is not None
        return call("artifact", id=where[2], offset=4096)

    stage = Stage(
        one("a"), read_on, lambda q: q.messages[-1].text, sums={"a": "x" * 4096 + "the rest"}
    )
    assert (await stage.go()).outcome.text.startswith("the rest\n[bytes 4096 to 4104;")


@pytest.mark.parametrize("allowed", [{}, {"allowed_tools": ["look_up"]}])
@on_virtual_time
async def test_a_child_can_read_on_in_what_its_own_child_returned(allowed: dict[str, Any]) -> None:
    def read_on(request: Any) -> Any:
        where = WHOLE.search(msgspec.json.decode(request.messages[-1].text)["output"])
        assert where is not None
        return call("artifact", id=where[2], offset=4096)

    middle = [one("deep"), read_on, "read it"]
    stage = Stage(
        one("middle", **allowed), does={"middle": middle}, sums={"deep": "x" * 4096 + "the rest"}
    )
    await stage.go()
    assert stage.of("middle")[2].messages[-1].text.startswith("the rest\n[bytes 4096 to 4104;")


@on_virtual_time
async def test_the_size_can_be_set() -> None:
    for size in (1024, 10_000):
        short, _ = await summary("x" * size, output_max_size=size)
        assert short["truncated"] is False
        long, whole = await summary("x" * (size + 1), output_max_size=size)
        assert long["truncated"] is True and long["output"].partition("...")[0].count("x") == size
        assert len(whole) == size + 1


@on_virtual_time
async def test_what_was_too_long_for_the_machine_is_told_as_cut_with_the_size_of_the_whole() -> (
    None
):
    rules = Limits(text_cap=5_000)
    result, whole = await summary("x" * 9_000, rules, output_max_size=1024)
    match = WHOLE.search(result["output"])
    assert match is not None and int(match[1]) == 9_000 and len(whole) == 9_000
    # A size above what any text may have: the machine has cut it, and said where the whole is.
    stage = Stage(one("a"), sums={"a": "x" * 9_000}, output_max_size=100_000)
    async with Retinue(clock=VirtualClock(), limits=Limits(text_cap=8_000)) as retinue:
        (text,) = (await played(retinue, await retinue.spawn(stage.lead, "Go."))).told
    text = msgspec.json.decode(text.text)
    match = WHOLE.search(text["output"])
    assert match is not None and int(match[1]) == 9_000 and text["truncated"] is True


@on_virtual_time
async def test_an_output_that_the_machine_has_cut_is_never_called_whole() -> None:
    text, artifact = (
        "x" * 100 + "\n[truncated: 9 of 109 characters hidden]",
        Artifact(path="f", size=109, sha256="f"),
    )
    assert cut(text, 4_096, artifact) == (text, True)
    assert cut(text, 4_096, None) == (text, False)


@on_virtual_time
async def test_a_partial_output_is_cut_like_any_other() -> None:
    text = "é" * 4_000

    def work(request: Any) -> Any:
        return text if request.purpose == "grace" else call("look_up", word="x")

    stage = Stage(one("a", max_turns=1), does={"a": work})
    async with Retinue(clock=VirtualClock()) as retinue:
        output = await played(retinue, await retinue.spawn(stage.lead, "Go."))
        where = WHOLE.search(output.result["output"])
        assert where is not None and (await retinue.artifact(where[2])).decode() == text
    assert (output.result["truncated"], output.result["metadata"]["completion_status"]) == (
        True,
        "incomplete",
    )


@on_virtual_time
async def test_each_output_of_a_batch_is_cut_and_names_its_own_whole() -> None:
    texts = {f"t{n}": f"{n}" * 5_000 for n in range(3)}
    stage = Stage(many(*texts), sums=texts)
    async with Retinue(clock=VirtualClock()) as retinue:
        output = await played(retinue, await retinue.spawn(stage.lead, "Go."))
        for n, line in enumerate(output.result["results"]):
            where = WHOLE.search(line["output"])
            assert (
                where is not None and (await retinue.artifact(where[2])).decode() == f"{n}" * 5_000
            )
            assert line["output"].startswith(f"{n}" * 4_096 + "\n... (truncated)\n")


@on_virtual_time
async def test_the_results_of_many_tasks_fit_into_one_answer() -> None:
    """Each shows less, rather than that the last of them are not seen at all; and none is lost."""
    texts = {f"t{n}": f"{n:03}" * 3_000 for n in range(60)}
    stage = Stage(many(*texts, max_concurrent=60), sums=texts)
    async with Retinue(clock=VirtualClock()) as retinue:
        output = await played(retinue, await retinue.spawn(stage.lead, "Go."))
        (batch,) = results(output.told)
        assert [line["label"] for line in batch["results"]] == list(texts)
        for line in batch["results"]:
            where = WHOLE.search(line["output"])
            assert (
                where is not None
                and (await retinue.artifact(where[2])).decode() == texts[line["label"]]
            )


@settings(max_examples=300, deadline=None)
@given(st.text(), st.integers(1, 200), st.booleans())
def test_whatever_is_cut_stays_a_beginning_of_what_was_said(
    text: str, size: int, is_kept: bool
) -> None:
    text = text.encode("utf-8", "ignore").decode()
    data = text.encode()
    whole = Artifact(path="a", size=len(data), sha256="a") if is_kept and len(data) > size else None
    output, truncated = cut(text, size, whole)
    assert truncated == (len(data) > size)
    if not truncated:
        assert output == text
        return
    head, _, tail = output.rpartition(MARK)
    assert text.startswith(head)
    assert size - 4 * 32 < len(head.encode()) <= size, (
        "not half a character, nor a letter without its marks"
    )
    assert tail == (f"\n(full text, {len(data)} bytes, in artifact a)" if whole else "")
