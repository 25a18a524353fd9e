"""Names of hosts: whoever rules on an address and whoever connects to it read the same."""

from __future__ import annotations

import pytest

from retinue.formats.host_names import spelled
from retinue.tools.builtin.web_address import parse_url
from tests.security.holes import FETCH, verdict

SHARP, ITS_ASCII = "wei\u00df.example", "xn--wei-7ka.example"
SAME = [
    ("127.0.0.1", "[::ffff:127.0.0.1]"),
    ("127.0.0.1", "[::ffff:7f00:1]:80"),
    ("10.0.0.1", "[64:ff9b::a00:1]"),
    ("[::1]", "[0:0:0:0:0:0:0:1]:443"),
    (SHARP, ITS_ASCII),
    (SHARP.upper().replace("SS", "\u00df"), ITS_ASCII),
    ("m\u00fcnchen.example", "xn--mnchen-3ya.example"),
    ("a.example", "A.EXAMPLE."),
    ("a.example", "\uff41\u3002example:80"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_ways_to_write_a_host_are_one(one: str, other: str) -> None:
    assert spelled(one) == spelled(other)
    assert (
        verdict("fetch", {"url": f"http://{other}/x"}, FETCH, f"deny: fetch(domain:{one})")
        == "deny"
    )


def test_a_letter_of_its_own_is_not_two_others() -> None:
    assert spelled(SHARP) != spelled("weiss.example")
    rule = "allow: fetch(domain:weiss.example)"
    assert verdict("fetch", {"url": f"http://{SHARP}/"}, FETCH, rule, mode="manual") != "allow"


@pytest.mark.parametrize(
    "url", [f"http://{SHARP}/", f"http://{ITS_ASCII}/", "http://[::ffff:127.0.0.1]:8080/a"]
)
def test_what_is_connected_to_is_what_was_ruled_on(url: str) -> None:
    from yarl import URL

    target = parse_url(url)
    assert (
        target.host == spelled(url.split("/")[2])
        and URL(target.url, encoded=True).raw_host == target.host
    )
