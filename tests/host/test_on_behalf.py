"""An admin works for one user, and then sees no one else's runs. A guest's key lasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.host.guest_keys import guest_key
from retinue.host.mcp_sources import is_retinue
from tests.host.served import ADMIN, ALICE, BOB, served


def ids(reply: Any) -> list[str]:
    return [run["id"] for run in reply.json["runs"]]


def test_an_admin_works_on_behalf_of_one_user() -> None:
    with served() as service:
        start = {"task": "say it"}
        mine = service.call("POST", "/api/v1/runs", start, Retinue_User="guest").json["run"]
        other = service.call("POST", "/api/v1/runs", start, token=ALICE).json["run"]
        assert ids(service.call("GET", "/api/v1/runs", Retinue_User="guest")) == [mine]
        reply = service.call("GET", f"/api/v1/runs/{other}", Retinue_User="guest")
        assert reply.status == 404
        assert set(ids(service.call("GET", "/api/v1/runs", token=ADMIN))) == {mine, other}
        for token in (ALICE, BOB):
            refused = service.call("GET", "/api/v1/runs", token=token, Retinue_User="guest")
            assert refused.status == 403
        for odd in ("a b", "ä", "x" * 201):
            assert service.call("GET", "/api/v1/runs", Retinue_User=odd).status == 403


def test_the_key_of_a_guest_is_its_own_and_lasts(tmp_path: Path) -> None:
    store = str(tmp_path / "retinue.db")
    (tmp_path / "retinue.db.plans").mkdir()
    key = guest_key(store, "one")
    assert guest_key(store, "one") == key != guest_key(store, "two")
    (secret,) = (tmp_path / "retinue.db.plans").iterdir()
    assert secret.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("entry", "is_ours"),
    [
        ({"command": "/opt/bin/retinue", "args": ["mcp", "serve", "--guest", "x"]}, True),
        ({"command": "python", "args": ["-m", "retinue", "mcp", "serve"]}, True),
        ({"type": "local", "command": ["retinue", "mcp", "serve"]}, True),
        ({"command": "retinue", "args": ["mcp", "list"]}, False),
        ({"command": "other", "args": ["mcp", "serve"]}, False),
        ({"url": "https://mcp.example.test"}, False),
        ("retinue mcp serve", False),
    ],
)
def test_our_own_server_is_known_by_its_command(entry: Any, is_ours: bool) -> None:
    assert is_retinue(entry) is is_ours
