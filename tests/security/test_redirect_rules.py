"""Where a redirect leads is ruled on like a first address: by allow, ask and deny rules, by the
mode, and by grants."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from retinue import Permissions, Retinue, tool
from retinue.testing import call
from retinue.tools.builtin import fetch as web
from tests.security.holes import agent, results, until
from tests.tools.builtin.web_support import page, redirect, serving

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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    rules: tuple[str, ...],
    is_read: bool,
    n_hops: int,
) -> None:
    async def main() -> tuple[str, int]:
        async with serving(page("behind the redirect")) as last:
            hops = {f"/{n}": redirect(f"/{n + 1}") for n in range(n_hops - 1)}
            to = redirect(f"http://{SECOND}:{last.port}/x")
            async with serving({**hops, f"/{n_hops - 1}": to}) as first:
                fetch = web.FetchTool(
                    allow=(*first.allow, *last.allow),
                    ports=(first.port, last.port),
                    resolve=resolve,
                )
                monkeypatch.setattr(web, "FetchTool", lambda: fetch)
                reader = agent(
                    "reader", call("fetch", url=f"http://{FIRST}:{first.port}/0"), tools=["fetch"]
                )
                async with Retinue(tmp_path / "r.db") as retinue:
                    access = Permissions(mode=mode, rules=tuple(sorted(rules)))
                    run = await retinue.spawn(reader, "Go.", permissions=access)
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
                fetch = web.FetchTool(
                    allow=(*first.allow, *last.allow),
                    ports=(first.port, last.port),
                    resolve=resolve,
                )
                monkeypatch.setattr(web, "FetchTool", lambda: fetch)
                calls = (
                    call("fetch", url=f"http://{FIRST}:{first.port}/"),
                    call("fetch", url=address),
                )
                reader = agent("reader", *calls, tools=["fetch"])
                async with Retinue(tmp_path / "r.db") as retinue:
                    run = await retinue.spawn(
                        reader, "Go.", permissions=Permissions(mode="manual"), questions="ask"
                    )
                    (questions,) = await until(lambda: retinue.open_questions(run))
                    await retinue.decide(questions.id, True, always=True)
                    (again,) = await until(lambda: _other(retinue, run, questions.id))
                    assert last.n_connects == 0 and address in again.text
                    await retinue.decide(again.id, True)
                    await retinue.wait(run)
                    refused, read = await results(retinue, run)
                    assert "needs its own permission" in refused and address in refused
                    assert "behind the redirect" in read

    asyncio.run(main())


async def _other(retinue: Retinue, run: str, name: str) -> list[object]:
    return [q for q in await retinue.open_questions(run) if q.id != name]


SPELLINGS = [
    # a rule that asks, and another way to write the address that it is about
    ("ask: fetch(http://first.example:{port}/*)", "HTTP://first.example:{port}/0"),
    ("ask: fetch(http://first.example:{port}/*)", "http://First.Example:{port}/0"),
    ("ask: fetch(http://first.example:{port}/*)", "http://first.example.:{port}/0"),
    ("ask: fetch(http://first.example:{port}/*)", " http://first.example:{port}/0"),
    ("ask: fetch(*/private/*)", "http://first.example:{port}/%70rivate/0"),
    ("ask: fetch(*/private/*)", "http://first.example:{port}/x/../private/0"),
    ("ask: fetch(*/private/*)", "http://first.example:{port}/./%70rivate/0"),
    ("deny: fetch(*/private/*)", "http://first.example:{port}/%70rivate/0"),
    ("deny: fetch(*/private/*)", "http://first.example:{port}/private/%2e/0"),
    ("deny: fetch(*/private/0)", "http://first.example:{port}/private/%2e/0"),
    ("deny: fetch(*/private/*)", "http://first.example:{port}/public/..%2fprivate/0"),
]
PERMITTED = [
    # a rule that permits a part of a host, and an address that only looks like that part
    (
        "allow: fetch(http://first.example:{port}/public/*)",
        "http://first.example:{port}/public/../private/0",
    ),
    (
        "allow: fetch(http://first.example:{port}/public/*)",
        "http://first.example:{port}/public/%2e%2e/private/0",
    ),
    (
        "allow: fetch(http://first.example:{port}/public/*)",
        "http://first.example:{port}/public/.%2E/private/0",
    ),
    (
        "allow: fetch(http://first.example:{port}/public/*)",
        "http://first.example:{port}/public/..%2fprivate/0",
    ),
    (
        "allow: fetch(http://first.example:{port}/public/*)",
        "http://first.example:{port}/public/%2e%2e%5cprivate/0",
    ),
]


@pytest.mark.parametrize(
    ("mode", "rule", "url"),
    [
        *(("bypassPermissions", *case) for case in SPELLINGS),
        *(("manual", *case) for case in PERMITTED),
    ],
)
def test_another_spelling_of_an_address_gets_round_no_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, rule: str, url: str
) -> None:
    async def main() -> tuple[str, int]:
        async with serving(page("what is behind the rule")) as server:
            fetch = web.FetchTool(allow=server.allow, ports=(server.port,), resolve=resolve)
            monkeypatch.setattr(web, "FetchTool", lambda: fetch)
            reader = agent(
                "reader", call("fetch", url=url.format(port=server.port)), tools=["fetch"]
            )
            async with Retinue(tmp_path / "r.db") as retinue:
                access = Permissions(mode=mode, rules=(rule.format(port=server.port),))
                run = await retinue.spawn(reader, "Go.", permissions=access)
                await retinue.wait(run)
                return (await results(retinue, run))[0], server.n_connects

    text, n_connects = asyncio.run(main())
    assert "behind the rule" not in text and n_connects == 0, text


@pytest.mark.parametrize(
    "url", ["http://first.example:{port}", "http://first.example:{port}/a%2fb", "{plain}/x/"]
)
def test_what_is_permitted_is_read_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    async def main() -> str:
        async with serving(page("here it is")) as server:
            plain = f"http://first.example:{server.port}"
            fetch = web.FetchTool(allow=server.allow, ports=(server.port,), resolve=resolve)
            monkeypatch.setattr(web, "FetchTool", lambda: fetch)
            text = url.format(port=server.port, plain=plain)
            reader = agent("reader", call("fetch", url=text), tools=["fetch"])
            async with Retinue(tmp_path / "r.db") as retinue:
                access = Permissions(mode="manual", rules=(f"allow: fetch({plain}*)",))
                run = await retinue.spawn(reader, "Go.", permissions=access)
                await retinue.wait(run)
                return (await results(retinue, run))[0]

    assert "here it is" in asyncio.run(main())


def test_a_page_that_is_kept_is_ruled_on_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first part was permitted; meanwhile a rule was added about the address that it was
    redirected to."""

    async def main() -> list[str]:
        async with (
            serving(page("word " * 9_000)) as last,
            serving(redirect(f"http://{SECOND}:{last.port}/x")) as first,
        ):
            fetch = web.FetchTool(
                allow=(*first.allow, *last.allow), ports=(first.port, last.port), resolve=resolve
            )
            monkeypatch.setattr(web, "FetchTool", lambda: fetch)
            url = f"http://{FIRST}:{first.port}/0"
            calls = [call("fetch", url=url), call("take_back"), call("fetch", url=url, offset=100)]
            run = ""

            @tool(restart="pure")
            async def take_back() -> str:
                """A rule is added."""
                await retinue.restrict(run, Permissions(rules=(f"deny: fetch(domain:{SECOND})",)))
                return "done"

            reader = agent("reader", *calls, tools=["fetch", take_back])
            async with Retinue(tmp_path / "r.db") as retinue:
                run = await retinue.spawn(
                    reader, "Go.", permissions=Permissions(mode="bypassPermissions")
                )
                await retinue.wait(run)
                return await results(retinue, run)

    first, _, again = asyncio.run(main())
    assert "word word" in first
    assert "word word" not in again and "cannot be fetched: rule 'deny: fetch" in again


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://\u0430pple.example/", "xn--pple-43d.example"),
        ("https://bank.example:443@evil.example/", "evil.example"),
        ("https://\u212aey.example/", "key.example"),
        ("https://bank\uff0eexample\u3002evil.example/", "bank.example.evil.example"),
        ("https://bank.example/", ""),
        ("HTTPS://Bank.example:8443/x", ""),
        ("https://[2606:4700::1111]/", ""),
        ("no address", ""),
    ],
)
def test_whoever_is_asked_sees_the_host_that_will_be_asked(
    tmp_path: Path, url: str, host: str
) -> None:
    async def main() -> str:
        reader = agent("reader", call("fetch", url=url), tools=["fetch"])
        async with Retinue(tmp_path / "r.db") as retinue:
            run = await retinue.spawn(
                reader, "Go.", permissions=Permissions(mode="manual"), questions="ask"
            )
            (questions,) = await until(lambda: retinue.open_questions(run))
            await retinue.decide(questions.id, False)
            await retinue.wait(run)
            return str(questions.shown)

    first = asyncio.run(main()).splitlines()[0]
    assert first == (f"fetch (host: {host})" if host else "fetch")
