"""A2A, version 1: what the public test kit asks for at the level "must", in both bindings. The
names of its requirements are in the docstrings."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, tool
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from tests.host.served import ADMIN, ALICE, BOB, READER, Served, served
from tests.server.a2a_calls import Binding, message
from tests.waiting import SECONDS

OPENED = threading.Event()


@tool(restart="pure")
async def wait_here() -> str:
    """Wait until the test says so."""
    await asyncio.to_thread(OPENED.wait, SECONDS)
    return "waited"


def counting(request: ModelRequest) -> str:
    return f"Answer to message {len(request.messages)}."


def agents() -> list[Agent]:
    asks = [call("ask", question="Which city?"), "Lima it is."]
    return [
        Agent("main", "Be kind.", model=Scripted(counting, name="counting")),
        Agent("curious", model=Scripted(asks, name="curious's"), tools=["ask"]),
        Agent(
            "slow",
            model=Scripted([call("wait_here"), "Done."], name="slow's"),
            tools=[wait_here],
        ),
        Agent("broken", model=Scripted([ValueError("no such planet")], name="broken's")),
    ]


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with served(agents=agents()) as service:
        yield service
        OPENED.set()


@pytest.fixture(params=["JSON-RPC", "HTTP+JSON"])
def a2a(api: Served, request: pytest.FixtureRequest) -> Binding:
    return Binding(api, request.param == "JSON-RPC")


def completed(a2a: Binding, **options: Any) -> Any:
    return a2a.call("SendMessage", message=message(**options)).result["task"]


def asking(a2a: Binding) -> Any:
    """A task that waits for its client."""
    reply = a2a.call("SendMessage", message=message("book a flight"), tenant="curious")
    return reply.result["task"]


def started(a2a: Binding) -> Any:
    """A task that is at work."""
    OPENED.clear()
    options = {"returnImmediately": True}
    reply = a2a.call("SendMessage", message=message(), tenant="slow", configuration=options)
    return reply.result["task"]


def test_the_card_says_what_there_is(api: Served) -> None:
    """CARD-DISC-001, CARD-PROTO-001, CARD-PROTO-002, CARD-STRUCT-001."""
    reply = api.call("GET", "/.well-known/agent-card.json", token=ALICE)
    card = reply.json
    assert reply.status == 200 and reply.headers["content-type"] == "application/json"
    for field in ("name", "description", "version", "capabilities", "skills"):
        assert card[field]
    place = f"http://127.0.0.1:{api.port}/a2a"
    assert [(i["url"], i["protocolBinding"]) for i in card["supportedInterfaces"]] == [
        (place, "JSONRPC"),
        (place, "HTTP+JSON"),
    ]
    assert {i["protocolVersion"] for i in card["supportedInterfaces"]} == {"1.0"}
    again = api.call(
        "GET", "/.well-known/agent-card.json", token=READER, If_None_Match=reply.headers["etag"]
    )
    assert again.status == 304 and "max-age" in again.headers["cache-control"]
    other = api.call("GET", "/a2a/curious/.well-known/agent-card.json", token=ALICE).json
    assert other["name"] == "curious" and other["supportedInterfaces"][0]["tenant"] == "curious"
    assert api.call("GET", "/a2a/nobody/.well-known/agent-card.json").status == 400
    secure = api.call("GET", "/.well-known/agent-card.json", X_Forwarded_Proto="https").json
    assert secure["supportedInterfaces"][0]["url"].startswith("https://")


def test_a_message_gives_a_task(a2a: Binding) -> None:
    """CORE-SEND-001, CORE-MULTI-001a, CORE-MULTI-003, CORE-EXECUTION-MODE-001, DM-*."""
    task = completed(a2a, text="What is new?")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["contextId"] and task["id"] != completed(a2a)["id"]
    at = task["status"]["timestamp"]
    assert at.endswith("Z") and datetime.fromisoformat(at)
    [artifact] = task["artifacts"]
    assert artifact["artifactId"] and artifact["parts"][0]["text"] == "Answer to message 1."
    roles = [(m["role"], m["parts"][0]["text"]) for m in task["history"]]
    assert roles == [("ROLE_USER", "What is new?"), ("ROLE_AGENT", "Answer to message 1.")]
    assert all(m["messageId"] and m["taskId"] == task["id"] for m in task["history"])


def test_a_task_is_read_again_with_as_much_history_as_wanted(a2a: Binding) -> None:
    """CORE-GET-001, CORE-GET-002, CORE-HIST-001, CORE-HIST-002, CORE-HIST-003."""
    task = completed(a2a)
    assert a2a.call("GetTask", id=task["id"]).result == task
    assert "history" not in a2a.call("GetTask", id=task["id"], historyLength=0).result
    for one in (1, 1.0):
        assert len(a2a.call("GetTask", id=task["id"], historyLength=one).result["history"]) == 1
    reply = a2a.call("SendMessage", message=message(), configuration={"historyLength": 0})
    assert "history" not in reply.result["task"]
    missing = a2a.call("GetTask", id="nothing-here")
    assert missing.code in (-32001, 404) and missing.reason == "TASK_NOT_FOUND"


def test_a_task_that_is_over_takes_nothing(a2a: Binding) -> None:
    """CORE-SEND-002, CORE-CANCEL-002, STREAM-SUB-003."""
    task = completed(a2a)
    reply = a2a.call("SendMessage", message=message(taskId=task["id"]))
    assert reply.code in (-32004, 400) and reply.reason == "UNSUPPORTED_OPERATION"
    ended = a2a.call("CancelTask", id=task["id"])
    assert ended.code in (-32002, 409) and ended.reason == "TASK_NOT_CANCELABLE"
    follow = a2a.call("SubscribeToTask", id=task["id"])
    assert follow.code in (-32004, 400) and follow.reason == "UNSUPPORTED_OPERATION"


@pytest.mark.parametrize(
    "part",
    [
        {"raw": "dGNr", "mediaType": "application/x-unsupported"},
        {"url": "https://example.org/picture.png"},
        {"text": "<svg/>", "mediaType": "image/svg+xml"},
    ],
)
def test_media_that_no_agent_reads_are_refused(a2a: Binding, part: Any) -> None:
    """CORE-SEND-003."""
    reply = a2a.call("SendMessage", message=message(parts=[part]))
    assert reply.code in (-32005, 415) and reply.reason == "CONTENT_TYPE_NOT_SUPPORTED"


@pytest.mark.parametrize(
    "change",
    [
        {"parts": []},
        {"parts": [{"text": "x", "data": {"y": 1}}]},
        {"parts": [{}]},
        {"role": "ROLE_AGENT"},
        {"messageId": ""},
        {"parts": "x"},
    ],
)
def test_a_message_that_is_none_is_refused(a2a: Binding, change: Any) -> None:
    """CORE-ERR-001, CORE-ERR-002, DM-PART-001, DM-SERIAL-004."""
    reply = a2a.call("SendMessage", message=message(**change))
    assert reply.code in (-32602, 400) and reply.reason == "INVALID_PARAMS" and reply.message


def test_data_and_unknown_fields_are_taken(a2a: Binding) -> None:
    """DM-SERIAL-005."""
    result = message(parts=[{"data": {"city": "Lima"}}], someday={"x": 1})
    task = a2a.call("SendMessage", message=result, later=True).result["task"]
    assert task["history"][0]["parts"][0]["text"] == '{"city":"Lima"}'


def test_an_unknown_task_or_agent_is_not_found(a2a: Binding) -> None:
    """CORE-MULTI-004, CORE-CANCEL-003, STREAM-SUB-004."""
    for name, params in (
        ("SendMessage", {"message": message(taskId="nothing-here")}),
        ("CancelTask", {"id": "nothing-here"}),
        ("SubscribeToTask", {"id": "nothing-here"}),
        ("ListTaskPushNotificationConfigs", {"taskId": "nothing-here"}),
    ):
        missing = a2a.call(name, **params)
        assert missing.code in (-32001, 404) and missing.reason == "TASK_NOT_FOUND", name
    nobody = a2a.call("SendMessage", message=message(), tenant="nobody")
    assert nobody.reason == "INVALID_PARAMS" and "nobody" in nobody.message


def test_a_context_is_a_conversation(a2a: Binding) -> None:
    """CORE-MULTI-002, CORE-MULTI-005, CORE-MULTI-006."""
    first = completed(a2a, contextId=f"trip to Lima {a2a.is_rpc}")
    assert first["contextId"] == f"trip to Lima {a2a.is_rpc}"
    second = completed(a2a, contextId=first["contextId"])
    assert second["artifacts"][0]["parts"][0]["text"] == "Answer to message 3."
    assert second["id"] != first["id"] and second["contextId"] == first["contextId"]
    task = asking(a2a)
    wrong = a2a.call("SendMessage", message=message(taskId=task["id"], contextId="another"))
    assert wrong.reason == "INVALID_PARAMS"
    answered = a2a.call("SendMessage", message=message("Lima", taskId=task["id"]))
    assert answered.result["task"]["contextId"] == task["contextId"]


def test_a_task_that_asks_is_answered(a2a: Binding) -> None:
    task = asking(a2a)
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert task["status"]["message"]["parts"][0]["text"] == "Which city?"
    answer = a2a.call("SendMessage", message=message("Lima", taskId=task["id"])).result["task"]
    assert answer["status"]["state"] == "TASK_STATE_COMPLETED"
    assert answer["artifacts"][0]["parts"][0]["text"] == "Lima it is."


def test_a_stream_begins_with_the_task_and_ends_with_it(a2a: Binding) -> None:
    """CORE-STREAM-001, CORE-STREAM-003, JSONRPC-SSE-001, HTTP_JSON-SSE-001."""
    events = a2a.call("SendStreamingMessage", message=message()).events or []
    assert [next(iter(e)) for e in events] == ["task", "artifactUpdate", "statusUpdate"]
    last = events[-1]["statusUpdate"]
    assert last["status"]["state"] == "TASK_STATE_COMPLETED"
    assert events[1]["artifactUpdate"]["artifact"]["parts"][0]["text"] == "Answer to message 1."
    assert a2a.call("GetTask", id=events[0]["task"]["id"]).result["status"] == last["status"]
    question = a2a.call("SendStreamingMessage", message=message(), tenant="curious").events or []
    assert question[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    failed = a2a.call("SendStreamingMessage", message=message(), tenant="broken").events or []
    status = failed[-1]["statusUpdate"]["status"]
    assert status["state"] == "TASK_STATE_FAILED"
    assert "no such planet" in status["message"]["parts"][0]["text"]


def test_all_streams_of_a_task_say_the_same(a2a: Binding) -> None:
    """STREAM-ORDER-001 to -004, STREAM-SUB-001, STREAM-SUB-002."""
    task, results = asking(a2a), list[Any]()

    def listen() -> None:
        results.append(a2a.call("SubscribeToTask", id=task["id"]).events)

    threads = [threading.Thread(target=listen) for _ in range(2)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + SECONDS
    while len(asyncio.run_coroutine_threadsafe(_watchers(a2a.api), a2a.api.loop).result()) < 2:
        assert time.monotonic() < until
        time.sleep(0.02)
    a2a.call("SendMessage", message=message("Lima", taskId=task["id"]))
    for thread in threads:
        thread.join(SECONDS)
    first, second = results
    assert first == second and first[0]["task"] == task
    assert [next(iter(event)) for event in first] == ["task", "artifactUpdate", "statusUpdate"]
    assert first[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def _watchers(api: Served) -> list[Any]:
    names = [str(task.get_coro()) for task in asyncio.all_tasks()]
    return [name for name in names if "_disconnect" in name]


def test_a_task_is_cancelled(a2a: Binding) -> None:
    """CORE-CANCEL-001, CORE-EXECUTION-MODE-002."""
    task = started(a2a)
    assert task["status"]["state"] in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED")
    ended = a2a.call("CancelTask", id=task["id"]).result
    assert ended["id"] == task["id"] and ended["status"]["state"] == "TASK_STATE_CANCELED"
    OPENED.set()


def test_tasks_are_listed_by_pages(a2a: Binding) -> None:
    """CORE-LIST-001 to -005."""
    context = f"many {a2a.is_rpc}"
    ids = [completed(a2a, contextId=context)["id"] for _ in range(3)]
    first = a2a.call("ListTasks", contextId=context, pageSize=2).result
    assert [t["id"] for t in first["tasks"]] == [ids[2], ids[1]]
    assert first["totalSize"] == 3 and first["pageSize"] == 2 and first["nextPageToken"]
    token = first["nextPageToken"]
    last = a2a.call("ListTasks", contextId=context, pageSize=2, pageToken=token).result
    assert [t["id"] for t in last["tasks"]] == [ids[0]] and last["nextPageToken"] == ""
    assert all("artifacts" not in t and "history" not in t for t in first["tasks"])
    full = a2a.call("ListTasks", contextId=context, includeArtifacts=True, historyLength=1).result
    assert all(t["artifacts"] and len(t["history"]) == 1 for t in full["tasks"])
    times = [t["status"]["timestamp"] for t in full["tasks"]]
    assert times == sorted(times, reverse=True)
    none = a2a.call("ListTasks", contextId=context, status="TASK_STATE_FAILED").result
    assert none["tasks"] == [] and none["nextPageToken"] == "" and none["totalSize"] == 0
    late = a2a.call("ListTasks", contextId=context, statusTimestampAfter="2999-01-01T00:00:00Z")
    assert late.result["tasks"] == []
    bob = Binding(a2a.api, a2a.is_rpc, BOB)
    assert bob.call("ListTasks", contextId=context).result["tasks"] == []
    assert bob.call("GetTask", id=ids[0]).reason == "TASK_NOT_FOUND"
    for wrong in (
        {"pageSize": 0},
        {"pageSize": 101},
        {"status": "NO_STATE"},
        {"pageToken": "?"},
        {"statusTimestampAfter": "soon"},
    ):
        assert a2a.call("ListTasks", **wrong).reason == "INVALID_PARAMS", wrong


def test_other_versions_are_not_spoken(a2a: Binding) -> None:
    """VER-SERVER-001 to -003, VER-CLIENT-002."""
    for version in ("", "0.3", "2.0", "99.0", "x"):
        a2a.version = version
        refused = a2a.call("ListTasks")
        assert refused.code in (-32009, 400) and refused.reason == "VERSION_NOT_SUPPORTED"
    a2a.version = "1.0.7"
    assert a2a.call("ListTasks").result


def test_the_extended_card_is_not_there(a2a: Binding) -> None:
    """CORE-CAP-003."""
    refused = a2a.call("GetExtendedAgentCard")
    assert refused.code in (-32004, 400) and refused.reason == "UNSUPPORTED_OPERATION"


def test_who_may_only_read_starts_nothing(a2a: Binding) -> None:
    a2a.token = READER
    assert a2a.call("SendMessage", message=message()).reason == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"id":1,"method":"GetTask"}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"GetTask"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[1]}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{}}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{}}', -32602),
    ],
)
def test_what_is_not_json_rpc_is_refused(api: Served, raw: bytes, code: int) -> None:
    """JSONRPC-FMT-001, JSONRPC-ERR-001, JSONRPC-ERR-002, JSONRPC-SSE-002."""
    headers = {"A2A_Version": "1.0", "Content_Type": "application/json"}
    reply = api.call("POST", "/a2a", raw=raw, **headers)
    assert reply.status == 200 and reply.json["error"]["code"] == code
    assert reply.json["error"]["message"] and reply.json["jsonrpc"] == "2.0"


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes notifications."""

    got: list[tuple[dict[str, str], Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.got.append((headers, json.loads(body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[Any]]]:
    replies: list[Any] = []
    handler = type("One", (Receiver,), {"got": replies})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/news", replies
    server.shutdown()
    server.server_close()


def until_over(replies: list[Any]) -> None:
    until = time.monotonic() + SECONDS
    while not any(
        body.get("statusUpdate", {}).get("status", {}).get("state") == "TASK_STATE_COMPLETED"
        for _, body in list(replies)
    ):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_where_news_are_sent_is_kept_with_the_task(a2a: Binding) -> None:
    """PUSH-CREATE-001, PUSH-CREATE-002, PUSH-GET-*, PUSH-LIST-001, PUSH-DEL-*."""
    task = completed(a2a)["id"]
    result = a2a.call(
        "CreateTaskPushNotificationConfig", taskId=task, id="one", url="https://example.com/hook"
    ).result
    assert result == {"id": "one", "taskId": task, "url": "https://example.com/hook"}
    assert a2a.call("GetTaskPushNotificationConfig", taskId=task, id="one").result == result
    listed = a2a.call("ListTaskPushNotificationConfigs", taskId=task).result
    assert listed["configs"] == [result]
    missing = a2a.call("GetTaskPushNotificationConfig", taskId=task, id="two")
    assert missing.reason == "TASK_NOT_FOUND"
    for _ in range(2):
        assert a2a.call("DeleteTaskPushNotificationConfig", taskId=task, id="one").code == 0
    assert a2a.call("ListTaskPushNotificationConfigs", taskId=task).result["configs"] == []
    for url in ("ftp://example.com/", "not a url", "https://user:pass@example.com/"):
        wrong = a2a.call("CreateTaskPushNotificationConfig", taskId=task, url=url)
        assert wrong.reason == "INVALID_PARAMS", url
    bob = Binding(a2a.api, a2a.is_rpc, BOB)
    assert bob.call("ListTaskPushNotificationConfigs", taskId=task).reason == "TASK_NOT_FOUND"


def test_news_are_sent_with_what_lets_them_in(a2a: Binding, receiver: Any) -> None:
    """PUSH-DELIVER-001 to -003."""
    url, reply = receiver
    a2a.token = ADMIN
    config = {
        "url": url,
        "token": "t-1",
        "authentication": {"scheme": "Bearer", "credentials": "for-the-hook"},
    }
    task = a2a.call(
        "SendMessage",
        message=message(),
        tenant="curious",
        configuration={"taskPushNotificationConfig": config},
    ).result["task"]
    [rest] = a2a.call("ListTaskPushNotificationConfigs", taskId=task["id"]).result["configs"]
    assert rest["authentication"] == {"scheme": "Bearer"}, "what lets in is not shown again"
    a2a.call("SendMessage", message=message("Lima", taskId=task["id"]))
    until_over(reply)
    for headers, body in reply:
        assert headers["authorization"] == "Bearer for-the-hook"
        assert headers["x-a2a-notification-token"] == "t-1"
        assert len(body) == 1 and {*body} <= {"task", "statusUpdate", "artifactUpdate"}


def test_news_do_not_reach_private_networks(
    a2a: Binding, receiver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may start runs may not have the host send requests to its own network."""
    caplog.set_level("INFO", logger="retinue.host")
    url, reply = receiver
    send_reply = a2a.call(
        "SendMessage",
        message=message(),
        configuration={"taskPushNotificationConfig": {"url": url}},
    )
    until = time.monotonic() + 60
    while "Refused" not in caplog.text:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert send_reply.result["task"]["status"]["state"] == "TASK_STATE_COMPLETED" and not reply


def test_news_are_sent_after_a_restart(tmp_path: Path, receiver: Any) -> None:
    from retinue.host.push_targets import PushTarget, PushTargets

    store = str(tmp_path / "runs.db")
    first = PushTargets(store)
    first.add(PushTarget(run="r1", id="one", url="https://example.org", credentials="secret"))
    second = PushTargets(store)
    assert second.find("r1", "one") == first.find("r1", "one") and second.waiting() == {"r1"}
    file = tmp_path / "runs.db.plans" / "push.json"
    assert file.stat().st_mode & 0o077 == 0
    second.done("r1")
    assert not PushTargets(store).waiting() and PushTargets(store).find("r1", "one")
    second.forget("r1")
    assert PushTargets(store).of("r1") == []
