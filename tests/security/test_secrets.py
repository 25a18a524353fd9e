"""Planted secrets, every way in, every place where something is written: none is found."""

from __future__ import annotations

import asyncio
import base64
import logging
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Ask, ModelError, Origin, Retinue, tool
from retinue.channels.base import Channel
from retinue.models.base import ModelRequest
from retinue.runtime.secret_filter import Redacting
from retinue.runtime.text_pieces import TextPiece
from retinue.testing import Scripted, call

CANARIES = {
    f"CANARY_{n}_KEY": f"cnry-{n:02d}-{'abcdefghij'[n % 10] * 3}/{n * 7919}+x=Z" for n in range(20)
}
FORMS = [
    lambda s: s,
    lambda s: base64.b64encode(s.encode()).decode(),
    lambda s: base64.urlsafe_b64encode(b"ab" + s.encode()).decode(),
    lambda s: urllib.parse.quote(s, safe=""),
    lambda s: s.encode().hex(),
]


class Told:
    """A channel that remembers."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def send(self, delivery: Any) -> None:
        self.texts.append(delivery.text)


def everything(text: str) -> list[str]:
    return [name for name, value in CANARIES.items() for form in FORMS if form(value) in text]


def leaky(kind: int) -> str:
    return " ".join(
        FORMS[(n + kind) % len(FORMS)](value) for n, value in enumerate(CANARIES.values())
    )


@tool(restart="pure")
def leak(long: bool = False) -> str:
    """Return everything that must not be written down."""
    return leaky(0) + ("\n" + "x" * 90_000 + "\n" + leaky(1) if long else "")


@tool(restart="pure")
def fail() -> str:
    """Fail with a secret."""
    raise ValueError(f"cannot log in with {leaky(2)}")


@tool(restart="pure")
def ask_user() -> Ask:
    """Ask with a secret."""
    return Ask(question=f"Is {leaky(3)} right?")


def test_the_form_of_this_test_finds_what_is_planted() -> None:
    assert len(everything(" ".join(leaky(n) for n in range(5)))) == len(CANARIES) * len(FORMS)


def test_no_secret_is_written_anywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records: list[str] = []
    record = Told()
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with Retinue(
            tmp_path / "r.db", secrets=CANARIES, channels={"told": channel(record)}
        ) as retinue:
            caplog.handler.addFilter(Redacting(retinue._engine.redactor))  # type: ignore[arg-type]
            talk = Scripted(script)
            lead = Agent("lead", leaky(4), model=talk, tools=[leak, fail, ask_user])
            origin = Origin(channel="told", user="u", thread="t")
            run = await retinue.spawn(
                lead, f"Go. {leaky(0)}", origin=origin, announce=True, questions="ask"
            )
            await retinue.send(run, leaky(1))
            async for item in retinue.steps(run, tree=False, deltas=True):
                records.append(repr(item))
                if "Asked" in repr(item):
                    records.append(repr(await retinue.open_questions()))
                    await retinue.answer(run, leaky(2))
            outcome = await retinue.outcome(run)
            assert outcome is not None
            records.append(
                repr(outcome) + repr(await retinue.messages(run)) + repr(await retinue.tree(run))
            )
            assert outcome.ok, outcome
            await retinue.settle(timeout=120)
            bad_agent = Agent("broken", model=Scripted(refuse, name="b"))
            records.append(repr(await retinue.run(bad_agent, "Go.")))
            await retinue.backup(tmp_path / "copy.db")
            logging.getLogger("retinue").warning("by hand: %s", leaky(3))

    asyncio.run(main())
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file():
            assert everything(path.read_bytes().decode("latin-1")) == [], path
    assert everything("\n".join(records)) == []
    assert any("TextPiece" in s for s in records), "previews were watched"
    assert record.texts
    assert everything("\n".join(record.texts)) == []
    assert everything(caplog.text) == []
    assert "[redacted:CANARY_0_KEY]" in "\n".join(records)


def script(request: ModelRequest) -> object:
    turns = [
        call("leak"),
        call("leak", long=True),
        call("fail"),
        call("ask_user"),
        f"done: {leaky(0)}",
    ]
    return turns[request.turn]


def refuse(request: ModelRequest) -> object:
    raise ModelError(f"401: bad key {leaky(1)}", kind="auth")


def channel(record: Told) -> Channel:
    return record  # type: ignore[return-value]


def test_a_secret_that_is_a_word_of_the_format_does_not_break_the_record(tmp_path: Path) -> None:
    async def main() -> str:
        async with Retinue(
            tmp_path / "r.db", secrets={"ODD": "assistant", "ODDER": 'Replied"'}
        ) as retinue:
            return (
                await retinue.run(Agent("a", model=Scripted(['my assistant says Replied"'])), "Go.")
            ).text

    assert asyncio.run(main()) == "my [redacted:ODD] says [redacted:ODDER]"


def test_a_preview_that_splits_a_secret_is_clean_too(tmp_path: Path) -> None:
    secret = CANARIES["CANARY_3_KEY"]

    class Slow:
        info = Scripted([""], name="slow").info

        async def complete(self, request: ModelRequest, emit: Any) -> Any:
            for c in f"it is {secret}!":
                emit(c)
                await asyncio.sleep(0)
            return await Scripted([f"it is {secret}!"]).complete(request, lambda _: None)

    async def main() -> list[str]:
        async with Retinue(secrets=CANARIES) as retinue:
            run = await retinue.spawn(Agent("a", model=Slow()), "Go.")
            return [
                item.text
                async for item in retinue.steps(run, tree=False, deltas=True)
                if isinstance(item, TextPiece)
            ]

    text = "".join(asyncio.run(main()))
    assert "is [redacted:CANARY_3_KEY]" in text
    assert secret not in text
