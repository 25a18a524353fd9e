"""Addresses for the news of tasks: what a client leaves there stops no later start of the server,
and no other client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue.errors import Refused
from retinue.host import push_targets
from retinue.host.push_targets import PushTarget, PushTargets
from tests.cli.private_home import private_home
from tests.security.served import ALICE, BOB, ServedProject, serving

LARGE, LONG = "x" * (20 << 20), "x" * 10_000


def asked(served: ServedProject, who: str, name: str, /, **params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": name, "params": params}
    return served.ask(who, "POST", "/a2a?A2A-Version=1.0", body)[1]


def begun(served: ServedProject, token: str) -> str:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    return str(asked(served, token, "SendMessage", message=message)["result"]["task"]["id"])


def test_no_client_leaves_more_than_the_next_start_can_read(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        with serving(home, tmp_path / "tokens") as served:
            task = begun(served, ALICE)
            large: list[dict[str, Any]] = [{"token": LARGE}] * 4
            large += [{"id": LONG}, {"authentication": {"scheme": "B", "credentials": LONG}}]
            for n, more in enumerate(large):
                config = {"taskId": task, "url": "https://example.org", "id": f"{n}", **more}
                reply = asked(served, ALICE, "CreateTaskPushNotificationConfig", **config)
                assert reply["error"]["code"] == -32602
        with serving(home, tmp_path / "tokens") as served:
            assert begun(served, BOB)


def test_the_addresses_of_one_user_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_targets, "MOST_OF_USER", 20)
    targets = PushTargets("")

    def add(n: int, user: str) -> None:
        targets.add(PushTarget(run=f"r{n // 10}", id=f"{n}", url="https://example.org", user=user))

    for n in range(20):
        add(n, "alice")
    with pytest.raises(Refused, match="are taken"):
        add(20, "alice")
    add(19, "alice")  # in the place of one that is there
    add(30, "bob")


def test_all_addresses_with_all_that_they_may_have_can_be_read_again(tmp_path: Path) -> None:
    wide = "\0" * 500
    whole = PushTarget(
        run="r",
        id=wide,
        url=wide,
        user="u",
        token="x" * 1_000,
        scheme="x" * 500,
        credentials="x" * 8_000,
    )
    size = len(msgspec.json.encode(whole))
    assert size * push_targets.MOST < push_targets.MOST_BYTES
