"""Clients over HTTP: `retinue serve` with three users, and their requests."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from tests.cli.private_home import PrivateHome
from tests.mcp.raw_client import TASKS, envelope

ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
CAROL = "carol-0123456789abcdef"


@contextlib.contextmanager
def served(home: PrivateHome, *flags: str) -> Iterator[str]:
    tokens = home.folder / "tokens"
    tokens.write_text(f"{ALICE} run,approve alice\n{BOB} read bob\n{CAROL} run carol\n")
    tokens.chmod(0o600)
    process = home.start("serve", "--port", "0", "--token-file", str(tokens), *flags)
    assert process.stderr is not None
    reply = None
    while reply is None:
        line = process.stderr.readline()
        assert line, "it ended"
        reply = re.search(r"on (http://\S+?)/api", line)
    try:
        yield f"{reply[1]}/mcp"
    finally:
        process.terminate()
        process.communicate(timeout=60)


def post(url: str, body: Any, token: str = ALICE, **headers: str) -> tuple[int, bytes]:
    sent = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    request = urllib.request.Request(url, json.dumps(body).encode(), sent)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def request(method: str, **params: Any) -> dict[str, Any]:
    meta = params.pop("meta", envelope())
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}}


META = envelope({"extensions": {TASKS: {}}})
NAMED = {"tools/call": "name", "resources/read": "uri", "tasks/get": "taskId"}
TRANSCRIPT = "retinue://runs/{id}/transcript"


class HttpGuest:
    """One user, in the era without state."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token

    def headers(self, method: str, params: dict[str, Any]) -> dict[str, str]:
        named = {"Mcp_Name": params[NAMED[method]]} if method in NAMED else {}
        return {"Mcp_Protocol_Version": "2026-07-28", "Mcp_Method": method, **named}

    def message(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole response."""
        body = request(method, meta=META, **params)
        _, data = post(self._url, body, self._token, **self.headers(method, params))
        reply: dict[str, Any] = json.loads(data.decode().rpartition("data: ")[2])
        return reply

    def ask(self, method: str, **params: Any) -> Any:
        return self.message(method, **params)["result"]

    def code(self, method: str, **params: Any) -> int:
        return int(self.message(method, **params)["error"]["code"])

    def tool(self, name: str, **arguments: Any) -> Any:
        return self.ask("tools/call", name=name, arguments=arguments)

    def listened(self, **notifications: Any) -> dict[str, Any]:
        """What of a subscription is honored."""
        headers = self.headers("subscriptions/listen", {}).items()
        sent = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            **{name.replace("_", "-"): value for name, value in headers},
        }
        body = json.dumps(request("subscriptions/listen", meta=META, notifications=notifications))
        http_request = urllib.request.Request(self._url, body.encode(), sent)
        with urllib.request.urlopen(http_request, timeout=60) as stream:
            line = next(line for line in stream if line.startswith(b"data: "))
        reply: dict[str, Any] = json.loads(line[6:])["params"]["notifications"]
        return reply

    def completed(self, typed: str) -> list[str]:
        ref = {"type": "ref/resource", "uri": TRANSCRIPT}
        argument = {"name": "id", "value": typed}
        values: list[str] = self.ask("completion/complete", ref=ref, argument=argument)[
            "completion"
        ]["values"]
        return values
