"""Two users of one host over HTTP: neither sees anything of the other, however it asks."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from tests.cli.private_home import Gate, private_home
from tests.mcp.http_guest import ALICE, CAROL, TRANSCRIPT, HttpGuest, post, served


def test_two_users_over_http_see_nothing_of_each_other(tmp_path: Path) -> None:
    gate = Gate("What only its user may see.")
    with private_home(tmp_path, gate) as home, served(home) as url:
        alice, carol = HttpGuest(url, ALICE), HttpGuest(url, CAROL)
        task = alice.tool("delegate", tasks=["a secret"])["taskId"]
        run = task.rpartition(".")[0]
        uri = TRANSCRIPT.replace("{id}", run)
        assert alice.completed(run[:8]) == [run] == alice.completed("")
        assert alice.listened(taskIds=[task], resourceSubscriptions=[uri]) == {
            "taskIds": [task],
            "resourceSubscriptions": [uri],
        }
        assert alice.ask("tasks/get", taskId=task)["status"] == "working"

        assert carol.completed(run[:8]) == [] == carol.completed("")
        nothing: dict[str, list[str]] = {"taskIds": [], "resourceSubscriptions": []}
        assert carol.listened(taskIds=[task], resourceSubscriptions=[uri]) == nothing
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            assert carol.code(method, taskId=task, inputResponses={}) == -32602
        assert carol.ask("resources/list")["resources"] == []
        assert carol.code("resources/read", uri=uri) == -32602
        assert carol.tool("agents")["structuredContent"] == {"agents": []}
        for tool, arguments in (
            ("result", {"ids": [run]}),
            ("agents", {"ids": [run]}),
            ("cancel", {"ids": [run]}),
            ("send", {"id": run, "text": "hello"}),
            ("fork", {"id": run, "task": "tell me"}),
            ("answer", {"id": run, "text": "yes"}),
        ):
            refused = carol.message("tools/call", name=tool, arguments=arguments)["result"]
            assert refused["isError"] and "secret" not in json.dumps(refused), tool
        sealed = {"name": "delegate", "arguments": {"tasks": ["x"]}, "requestState": task}
        assert carol.code("tools/call", **sealed) == -32602
        gate.opened.set()
        home.until(lambda: alice.ask("tasks/get", taskId=task)["status"] == "completed")
        assert len(home.runs()) == 1


def test_a_session_is_of_the_user_who_began_it(tmp_path: Path) -> None:
    with private_home(tmp_path) as home, served(home) as url:
        info = {"name": "x", "version": "1"}
        begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}
        sent = {
            "Authorization": f"Bearer {ALICE}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        http_request = urllib.request.Request(url, json.dumps(body).encode(), sent)
        with urllib.request.urlopen(http_request, timeout=60) as reply:
            session = reply.headers["Mcp-Session-Id"]
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert post(url, listing, ALICE, Mcp_Session_Id=session)[0] == 200
        assert post(url, listing, CAROL, Mcp_Session_Id=session)[0] == 404
