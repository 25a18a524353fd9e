"""A fetch never reaches this machine, its network or a cloud's metadata, however the address is
written."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence

import pytest

from retinue.errors import ConfigError, Refused
from retinue.tools.builtin.blocked_networks import blocked
from retinue.tools.builtin.fetch import FetchTool
from retinue.tools.builtin.ssrf import Gate, may_reach
from retinue.tools.builtin.web_address import parse_url, redirect_target
from tests.tools.builtin.web_support import caller, page, redirect, serving, told

INNER = [
    *(
        "127.0.0.1",
        "127.0.0.2",
        "127.255.255.254",
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
    ),
    *(
        "100.64.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "169.254.170.2",
        "172.16.0.1",
        "172.31.255.255",
    ),
    *(
        "192.0.0.1",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.51.100.7",
    ),
    *(
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "168.63.129.16",
    ),
]
SIX = [
    *(
        "::1",
        "::",
        "0:0:0:0:0:0:0:1",
        "0000:0000:0000:0000:0000:0000:0000:0001",
        "::0001",
        "fe80::1",
        "febf::1",
    ),
    *(
        "fec0::1",
        "fc00::1",
        "fd00::1",
        "fd00:ec2::254",
        "fdff:ffff::1",
        "ff02::1",
        "ff05::1:3",
        "ff0e::1",
    ),
    *(
        "2001:db8::1",
        "3fff::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:2::1",
        "2001:10::1",
    ),
    *(
        "2001:20::1",
        "100::1",
        "5f00::1",
        "64:ff9b:1::1",
        "3ffe::1",
        "4000::1",
        "8000::1",
        "2620:4f:8000::1",
    ),
]
DIGITS = str.maketrans(
    "0123456789.", "0123456789。".translate({ord("0") + n: 0xFF10 + n for n in range(10)})
)
CIRCLED = str.maketrans("0123456789", "⓪①②③④⑤⑥⑦⑧⑨")


def spellings(four: str) -> list[str]:
    """One address of IPv4 in all the ways that some program reads as it."""
    ip = ipaddress.IPv4Address(four)
    n, parts = int(ip), [int(part) for part in four.split(".")]
    high, low = f"{n >> 16:x}", f"{n & 0xFFFF:x}"
    return [
        four,
        f"{four}.",
        str(n),
        f"0x{n:08x}",
        f"0X{n:X}",
        f"0{n:o}",
        ".".join(f"0{part:03o}" for part in parts),
        ".".join(f"0x{part:x}" for part in parts),
        ".".join(f"{part:03}" for part in parts) if min(parts) < 100 else f"0{four}",
        f"{parts[0]}.{n & 0xFFFFFF}",
        f"{parts[0]}.{parts[1]}.{n & 0xFFFF}",
        f"0x{parts[0]:x}.{n & 0xFFFFFF}",
        four.translate(DIGITS),
        four.translate(CIRCLED),
        four.replace(".", "%2e"),
        f"[::ffff:{four}]",
        f"[::ffff:{high}:{low}]",
        f"[0:0:0:0:0:ffff:{high}:{low}]",
        f"[::{four}]",
        f"[::ffff:0:{four}]",
        f"[64:ff9b::{four}]",
        f"[64:ff9b:1::{high}:{low}]",
        f"[2002:{high}:{low}::1]",
        f"[2a00:1450:4001:81b::5efe:{high}:{low}]",
        f"[2a00:1450:4001:81b:200:5efe:{high}:{low}]",
    ]


NAMES = [
    *(
        "localhost",
        "LOCALHOST",
        "LocalHost",
        "localhost.",
        "a.localhost",
        "localhost.localdomain",
        "printer.local",
    ),
    *(
        "metadata.google.internal",
        "METADATA.google.internal.",
        "metadata",
        "metadata.goog",
        "instance-data",
    ),
    *(
        "instance-data.ec2.internal",
        "db.internal",
        "router.lan",
        "nas.home.arpa",
        "intranet",
        "\uff4cocalhost",
    ),
    *("ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "localhost。", "wiki.corp"),
]
TRICKS = [
    "http://good.example.org@127.0.0.1:{port}/",
    "http://good.example.org:80@127.0.0.1:{port}/",
    "http://user:pass@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@good.example.org/",
    "http://good.example.org\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@good.example.org/",
    "http:\\\\127.0.0.1:{port}/",
    "http:/127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "127.0.0.1:{port}/",
    "http://[::1%25lo]:{port}/",
    "http://[::1%lo]:{port}/",
    "http://[fe80::1%25eth0]:{port}/",
    "http://[::1]x:{port}/",
    "http://[::1:{port}/",
    "http://[v1.fe]:{port}/",
    "http://127.0.0.1\t:{port}/",
    "http://127.0.0.1\r\n:{port}/",
    "http://127.0.0.1 :{port}/",
    "http://127.0.0.1\u00a0:{port}/",
    "http://127.0.0.1%00.example.org:{port}/",
    "http://127.0.0.1#@good.example.org:{port}/",
    "http://127.0.0.1?@good.example.org/",
    "http://%31%32%37.0.0.1:{port}/",
    "http://%6c%6f%63%61%6c%68%6f%73%74:{port}/",
    "http://127.0.0.1:{port}0000/",
    "http://127.0.0.1:+{port}/",
    "http://127.0.0.1:\uff18\uff10/",
    "http://..127.0.0.1:{port}/",
    "http://127.0.0.1..:{port}/",
    "http://127..0.0.1:{port}/",
    "http://127.0.0.1:{port}:80/",
    "http:// 127.0.0.1:{port}/",
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "ftp://127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/_x",
    "dict://127.0.0.1:{port}/",
    "data:text/html,hello",
    "javascript:alert(1)",
    "ws://127.0.0.1:{port}/",
    "jar:http://127.0.0.1:{port}/!/",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/info",
    "unix:/var/run/docker.sock",
    "http://",
    "http://:{port}/",
    "",
    " ",
]


def corpus(port: int) -> list[str]:
    hosts = [*(s for four in INNER for s in spellings(four)), *(f"[{six}]" for six in SIX), *NAMES]
    urls = [f"{scheme}://{host}:{port}/" for host in hosts for scheme in ("http", "HTTPS")]
    return list(dict.fromkeys([*urls, *(trick.format(port=port) for trick in TRICKS)]))


def test_every_way_to_write_an_inner_address_is_refused_without_a_connect() -> None:
    """The port is open to fetch, so that it is the address that is refused. The names do resolve:
    to loopback."""
    questions: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        questions.append(host)
        return ["127.0.0.1", "::1"]

    async def story() -> None:
        async with (
            serving(page("got in")) as four,
            serving(page("got in"), host="::1", port=four.port) as six,
        ):
            fetch = FetchTool(ports=(four.port,), resolve=resolve)
            urls = corpus(four.port)
            assert len(urls) >= 1_000
            answers = {url: await fetch.run(caller(), {"url": url}) for url in urls}
            assert [url for url, answer in answers.items() if not answer.error] == []
            assert [
                answer.text for answer in answers.values() if "not allowed" in answer.text
            ] == []
            assert (four.n_connects, six.n_connects) == (0, 0)
            assert questions == [], "no name inside of a network is even asked for"
            # The listeners do count: when the address is allowed, the same request arrives.
            opened = FetchTool(allow=(*four.allow, f"[::1]:{four.port}"))
            assert "got in" in (await told(opened, four.url)).text
            assert "got in" in (await told(opened, f"http://[::1]:{four.port}/")).text
            assert (four.n_connects, six.n_connects) == (1, 1)

    asyncio.run(story())


@pytest.mark.parametrize(
    "inner", [*INNER, *SIX, "::ffff:10.0.0.1", "64:ff9b::a00:1", "fe80::1%eth0", "2002:a00:1::"]
)
def test_a_public_name_that_leads_inside_is_refused_though_others_of_its_addresses_are_public(
    inner: str,
) -> None:
    async def story() -> None:
        for addresses in ([inner], ["93.184.215.14", inner], [inner, "93.184.215.14"]):

            async def resolve(host: str, port: int, answer: list[str] = addresses) -> Sequence[str]:
                return answer

            with pytest.raises(Refused, match=r"www\.example\.org"):
                await Gate(resolve=resolve).admit(parse_url("http://www.example.org/"))

    asyncio.run(story())


PUBLIC = [
    "93.184.215.14",
    "8.8.8.8",
    "1.1.1.1",
    "172.15.0.1",
    "172.32.0.1",
    "100.63.0.1",
    "100.128.0.1",
    "223.255.255.1",
]
PUBLIC_SIX = [
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "2001:4860:4860::8888",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
]


@pytest.mark.parametrize("ip", [*PUBLIC, *PUBLIC_SIX])
def test_a_public_address_is_not_blocked(ip: str) -> None:
    assert blocked(ipaddress.ip_address(ip)) == ""


def test_the_name_is_resolved_once_and_the_connection_goes_to_that_answer() -> None:
    answers = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async def story() -> None:
        async with (
            serving(page("the first")) as first,
            serving(page("the second"), host="127.0.0.2", port=first.port) as second,
        ):
            fetch = FetchTool(allow=(f"127.0.0.0/8:{first.port}",), resolve=resolve)
            answer = await told(fetch, f"http://www.example.org:{first.port}/")
            assert "the first" in answer.text
            assert (first.n_connects, second.n_connects, len(answers)) == (1, 0, 2)
            assert f"\r\nHost: www.example.org:{first.port}\r\n" in first.heard[0]

    asyncio.run(story())


def test_a_name_that_changes_its_mind_between_two_steps_is_checked_again() -> None:
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async def story() -> None:
        async with (
            serving(redirect("/again")) as first,
            serving(page("inside"), host="127.0.0.2", port=first.port) as second,
        ):
            fetch = FetchTool(allow=first.allow, ports=(first.port,), resolve=resolve)
            answer = await told(fetch, f"http://www.example.org:{first.port}/")
            assert answer.error and "127.0.0.2" in answer.text
            assert (first.n_connects, second.n_connects) == (1, 0)

    asyncio.run(story())


@pytest.mark.parametrize(
    "to",
    [
        *(
            "file:///etc/passwd",
            "FILE:/etc/passwd",
            "ftp://127.0.0.1/",
            "gopher://127.0.0.1/",
            "javascript:1",
            "data:,x",
        ),
        *(
            "http://127.0.0.2:{port}/",
            "http://[::1]:{port}/",
            "//127.0.0.2:{port}/",
            "http://2130706434:{port}/",
        ),
        *(
            "http://169.254.169.254/latest/meta-data/",
            "http://metadata.google.internal/",
            "http://0.0.0.0:{port}/",
        ),
        *(
            "http://user:pass@127.0.0.1:{port}/",
            "//user@127.0.0.1:{port}/",
            "http://127.0.0.1\\@x.org/",
            "http://[x",
        ),
        *(
            "http://127.0.0.1:{port}1/",
            "http://www.example.org:22/",
            "/\x00",
            "http://\u2100.example.org/",
        ),
    ],
)
def test_a_redirect_is_refused_like_a_first_address(to: str) -> None:
    async def story() -> None:
        async with serving({"/": b""}) as server:
            location = to.replace("{port}", str(server.port))
            async with serving(page("inside"), host="127.0.0.2", port=server.port) as inside:

                async def say(path: str, writer: asyncio.StreamWriter) -> None:
                    writer.write(
                        b"HTTP/1.1 302 x\r\nlocation: "
                        + location.encode()
                        + b"\r\ncontent-length: 0\r\n\r\n"
                    )

                async with serving(say) as first:
                    fetch = FetchTool(allow=(*server.allow, *first.allow))
                    answer = await told(fetch, first.url)
                    assert answer.error and answer.text.startswith("Not fetched")
                    assert (first.n_connects, server.n_connects, inside.n_connects) == (1, 0, 0)

    asyncio.run(story())


def test_our_own_server_is_refused_even_when_its_address_is_allowed() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async def story() -> None:
        async with serving(page("our own")) as ours, serving(redirect(f"{ours.url}/api")) as other:
            own: set[tuple[str, int]] = set()
            fetch = FetchTool(allow=(*ours.allow, *other.allow), own=own, resolve=resolve)
            assert "our own" in (await told(fetch, f"{ours.url}/api")).text
            for name in ("127.0.0.1", "0.0.0.0", "::", "localhost", "www.example.org"):
                own.clear()
                own.add((name, ours.port))
                for url in (f"{ours.url}/api", other.url, f"http://www.example.org:{ours.port}/"):
                    answer = await told(fetch, url)
                    assert answer.error and "is Retinue's own server" in answer.text, (
                        name,
                        url,
                        answer.text,
                    )
            assert ours.n_connects == 1

    asyncio.run(story())


def test_an_address_of_this_machine_is_refused_though_it_may_be_public(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from retinue.tools.builtin import ssrf

    assert ssrf._is_local(ipaddress.ip_address("127.0.0.1"))
    monkeypatch.setattr(ssrf, "_is_local", lambda ip: True)
    with pytest.raises(Refused, match="this machine"):
        asyncio.run(Gate().admit(parse_url("http://93.184.215.14/")))


@pytest.mark.parametrize("port", [1, 22, 25, 6379, 8080, 65535])
def test_only_the_ports_of_the_web_are_open(port: int) -> None:
    with pytest.raises(Refused, match=f"port {port} is not allowed; allowed ports: 80, 443"):
        asyncio.run(Gate().admit(parse_url(f"http://93.184.215.14:{port}/")))


def test_a_network_that_is_allowed_opens_no_port_of_another() -> None:
    gate = Gate(allow=("10.0.0.0/8", "127.0.0.1:8080"))
    assert asyncio.run(gate.admit(parse_url("http://10.1.2.3/")))
    assert asyncio.run(gate.admit(parse_url("http://127.0.0.1:8080/")))
    for url in (
        "http://10.1.2.3:8080/",
        "http://127.0.0.1/",
        "http://93.184.215.14:8080/",
        "http://127.0.0.2:8080/",
    ):
        with pytest.raises(Refused):
            asyncio.run(gate.admit(parse_url(url)))


@pytest.mark.parametrize(
    "text", ["localhost:80", "10.0.0.0/33", "127.0.0.1:0", "127.0.0.1:x", "", "10.0.0.1/8", "*"]
)
def test_what_is_allowed_is_written_as_a_network(text: str) -> None:
    with pytest.raises(ConfigError, match="allow"):
        Gate(allow=(text,))


@pytest.mark.parametrize(
    ("host", "hosts", "yes"),
    [
        ("example.org", None, True),
        ("example.org", (), False),
        ("example.org", ("example.org",), True),
        ("example.org", ("EXAMPLE.org.",), True),
        ("a.example.org", ("example.org",), False),
        ("a.b.example.org", ("*.example.org",), True),
        ("example.org", ("*.example.org",), False),
        ("badexample.org", ("*.example.org", "*example.org"), False),
        ("xn--mnchen-3ya.de", ("münchen.de",), True),
        ("example.org.evil.net", ("example.org", "*.example.org"), False),
        ("any.net", ("*",), True),
    ],
)
def test_a_run_reaches_only_the_hosts_that_it_holds(
    host: str, hosts: tuple[str, ...] | None, yes: bool
) -> None:
    assert may_reach(host, hosts) is yes


def test_hosts_are_checked_at_every_step_before_any_name_is_asked_for() -> None:
    questions: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        questions.append(host)
        return ["127.0.0.1"]

    async def story() -> None:
        async with serving({"/": b"", "/go": b""}) as server:
            elsewhere = f"http://other.example.net:{server.port}/"
            async with serving(redirect(elsewhere)) as first:
                fetch = FetchTool(allow=(*first.allow, *server.allow), resolve=resolve)
                who = caller(hosts=("*.example.org",))
                answer = await told(fetch, f"http://www.example.org:{first.port}/", who)
                assert answer.error and "other.example.net is not one of the hosts" in answer.text
                answer = await told(fetch, f"http://third.example.net:{first.port}/", who)
                assert answer.error and (first.n_connects, server.n_connects) == (1, 0)
                assert questions == ["www.example.org"]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("HTTP://EXAMPLE.org", "http://example.org/"),
        (" https://example.org:443/a b".replace("a b", "a%20b"), "https://example.org/a%20b"),
        ("https://example.org.:8443/x?y=1#z", "https://example.org:8443/x?y=1"),
        ("http://münchen.de/straße?q=ö", "http://xn--mnchen-3ya.de/stra%C3%9Fe?q=%C3%B6"),
        ("http://[2606:4700:0:0::1111]/", "http://[2606:4700::1111]/"),
        ("http://8.8.8.8:/x", "http://8.8.8.8/x"),
    ],
)
def test_an_address_has_one_form(url: str, same: str) -> None:
    assert parse_url(url).url == same
    assert parse_url(parse_url(url).url) == parse_url(url)


def test_a_relative_redirect_is_read_from_where_it_came() -> None:
    start = parse_url("https://example.org/a/b?c")
    assert redirect_target(start, "../d?e").url == "https://example.org/d?e"
    assert redirect_target(start, "//other.org/x").url == "https://other.org/x"
    assert redirect_target(start, "?f").url == "https://example.org/a/b?f"
