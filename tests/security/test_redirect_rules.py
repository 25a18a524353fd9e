"""Where a redirect leads is ruled on like a first address: by allow, ask and deny rules, by the mode, and by grants."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from retinue import Capabilities, Retinue
from retinue.testing import call
from retinue.tools.builtin import web
from tests.security.holes import agent, results, until
from tests.tools.builtin.webcase import page, redirect, serving

FIRST, SECOND = "first.example", "second.example"
CASES = [
    # mode, rules, whether the page behind the redirect is read
    ("dontAsk", (f"allow: fetch(domain:{FIRST})",), False),
    ("dontAsk", (f"allow: fetch(domain:{FIRST})", f"allow: fetch(domain:{SECOND})"), True),
    ("plan", (f"allow: fetch(domain:{FIRST})",), False),
    ("manual", (f"allow: fetch(domain:{FIRST})",), False),
    ("manual", ("allow: fetch",), True),
    ("manual", (f"allow: fetch(http://{FIRST}:*)",), False),
    ("bypassPermissions", (), True),
    ("bypassPermissions", (f"ask: fetch(domain:{SECOND})",), False),
    ("bypassPermissions", (f"deny: fetch(domain:{SECOND})",), False),
    ("bypassPermissions", (f"deny: fetch(http://{SECOND}:*)",), False),
    ("auto", (f"allow: fetch(domain:{FIRST})",), False),
]


async def resolve(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.mark.parametrize("n_hops", [1, 3])
@pytest.mark.parametrize(("mode", "rules", "is_read"), CASES)
def test_each_hop_is_ruled_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, rules: tuple[str, ...], is_read: bool, n_hops: int
) -> None:
    async def main() -> tuple[str, int]:
        async with serving(page("behind the redirect")) as last:
            hops = {f"/{n}": redirect(f"/{n + 1}") for n in range(n_hops - 1)}
            to = redirect(f"http://{SECOND}:{last.port}/x")
            async with serving({**hops, f"/{n_hops - 1}": to}) as first:
                fetch = web.Fetch(allow=(*first.allow, *last.allow), ports=(first.port, last.port), resolve=resolve)
                monkeypatch.setattr(web, "Fetch", lambda: fetch)
                reader = agent("reader", call("fetch", url=f"http://{FIRST}:{first.port}/0"), tools=["fetch"])
                async with Retinue(tmp_path / "r.db") as retinue:
                    access = Capabilities(mode=mode, rules=tuple(sorted(rules)))
                    run = await retinue.spawn(reader, "Go.", access=access)
                    await retinue.wait(run)
                    assert first.n_connects == n_hops
                    return (await results(retinue, run))[0], last.n_connects

    text, n_connects = asyncio.run(main())
    assert ("behind the redirect" in text) is is_read, text
    assert n_connects == is_read
    assert is_read or SECOND in text


def test_a_person_who_permits_an_address_has_not_permitted_where_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving(page("behind the redirect")) as last:
            address = f"http://{SECOND}:{last.port}/x"
            async with serving(redirect(address)) as first:
                fetch = web.Fetch(allow=(*first.allow, *last.allow), ports=(first.port, last.port), resolve=resolve)
                monkeypatch.setattr(web, "Fetch", lambda: fetch)
                calls = (call("fetch", url=f"http://{FIRST}:{first.port}/"), call("fetch", url=address))
                reader = agent("reader", *calls, tools=["fetch"])
                async with Retinue(tmp_path / "r.db") as retinue:
                    run = await retinue.spawn(reader, "Go.", access=Capabilities(mode="manual"), questions="ask")
                    (asked,) = await until(lambda: retinue.questions(run))
                    await retinue.decide(asked.id, True, always=True)
                    (again,) = await until(lambda: _other(retinue, run, asked.id))
                    assert last.n_connects == 0 and address in again.text
                    await retinue.decide(again.id, True)
                    await retinue.wait(run)
                    refused, read = await results(retinue, run)
                    assert "needs a permission of its own" in refused and address in refused
                    assert "behind the redirect" in read

    asyncio.run(main())


async def _other(retinue: Retinue, run: str, known: str) -> list[object]:
    return [q for q in await retinue.questions(run) if q.id != known]
