"""The HTTP API: what each resource gives, over a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, tool
from retinue.core.values import Delivery, Origin
from retinue.errors import NotFound
from retinue.host.health import sandbox_health
from retinue.host.identity import OWNER, Identity
from retinue.host.openapi import description
from retinue.host.visibility import Visibility
from retinue.testing import Scripted, call
from tests.host.served import ADMIN, ALICE, BOB, READER, events_of, served
from tests.waiting import SECONDS

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"


def test_a_run_is_started_watched_and_read_back() -> None:
    with served(["All pages are fine."]) as api:
        reply = api.post("/runs", {"task": "check the pages"})
        run = reply.json["run"]
        assert reply.status == 201 and reply.headers["location"] == f"/api/v1/runs/{run}"
        events = events_of(api.get(f"/runs/{run}/events?deltas=true").body)
        assert events[-1]["event"] == "end"
        steps = [json.loads(e["data"]) for e in events if e["event"] == "step"]
        assert [str(s["seq"]) for s in steps] == [e["id"] for e in events if e["event"] == "step"]
        assert steps[0]["started"]["id"] == run
        assert [m["message"]["text"] for s in steps for m in s.get("messages", ())] == [
            "check the pages",
            "All pages are fine.",
        ]
        assert api.get(f"/runs/{run}").json["state"] == "completed"
        assert api.get(f"/runs/{run}/outcome").json["outcome"]["text"] == "All pages are fine."
        assert api.get(f"/runs/{run}/tree").json["children"] == []
        text = api.get(f"/runs/{run}/transcript").json
        assert text["length"] == 2 and text["messages"][0]["text"] == "check the pages"
        assert api.get(f"/runs/{run}/transcript?start=1&limit=1").json["messages"] == [
            text["messages"][1]
        ]


def test_the_same_idempotency_key_starts_one_run() -> None:
    with served() as api:
        first = api.start("one task", Idempotency_Key="k1")
        assert api.start("one task", Idempotency_Key="k1") == first
        assert api.start("one task", Idempotency_Key="k2") != first
        other = api.post("/runs", {"task": "different task"}, Idempotency_Key="k1")
        assert other.status == 409 and other.json["about"] == "key"
        assert api.start("one task", Idempotency_Key="k1", token=ALICE) != first


def test_runs_are_listed_by_pages_and_filters() -> None:
    with served() as api:
        runs = [api.finished(f"task {n}") for n in range(5)]
        first = api.get("/runs?limit=2").json
        assert [r["id"] for r in first["runs"]] == [runs[4], runs[3]] and first["next"] == runs[3]
        second = api.get(f"/runs?limit=3&before={first['next']}").json
        assert [r["id"] for r in second["runs"]] == [runs[2], runs[1], runs[0]]
        assert api.get(f"/runs?before={runs[0]}").json == {"runs": [], "next": ""}
        assert api.get("/runs?state=failed").json["runs"] == []
        assert len(api.get("/runs?state=completed&label=main").json["runs"]) == 5
        costs = api.get("/costs?limit=2").json
        assert [line["run"] for line in costs["runs"]] == [runs[4], runs[3]]
        assert costs["tokens"] == sum(line["tokens"] for line in costs["runs"])


def test_an_open_run_is_sent_messages_and_cancelled() -> None:
    opened, reached = threading.Event(), threading.Event()

    @tool(restart="pure")
    async def wait_here() -> str:
        """Wait."""
        import asyncio

        reached.set()
        await asyncio.to_thread(opened.wait, SECONDS)
        return "waited"

    lead = Agent("main", model=Scripted([call("wait_here"), "Done."]), tools=[wait_here])
    with served(agents=[lead]) as api:
        try:
            run = api.start()
            assert reached.wait(SECONDS)
            assert api.post(f"/runs/{run}/messages", {"text": "hurry"}).status == 200
            assert api.get(f"/runs/{run}/outcome").json["outcome"] is None
            waited = api.post("/wait", {"runs": [run], "timeout_seconds": 0.01}).json
            assert waited["states"] == {run: None}
            assert api.post("/cancel", {"runs": [run], "reason": "enough"}).json["states"] == {
                run: "cancelled"
            }
            late = api.post(f"/runs/{run}/messages", {"text": "too late"})
            assert late.status == 409 and late.json["kind"] == "Refused"
        finally:
            opened.set()


def test_a_run_that_has_ended_is_resumed_and_forked_and_takes_nothing_else() -> None:
    with served(["First.", "Second."]) as api:
        run = api.finished()
        assert api.get(f"/runs/{run}/fork?n=3").json["n"] == 3
        for verb in ("resume", "fork"):
            reply = api.post(f"/runs/{run}/{verb}", {"task": "and now?"})
            assert reply.status == 201, reply
            api.post("/wait", {"runs": [reply.json["run"]]})
        again = api.post(f"/runs/{run}/resume", {"task": "once more"})
        assert again.status == 409 and "already resumed" in again.json["detail"]
        nothing = api.post(f"/runs/{run}/answer", {"text": "blue"})
        assert nothing.status == 409 and nothing.json["about"] == "question"
        assert api.get("/questions").json == {"questions": []}
        assert api.get(f"/runs/{run}/budget").json["spending"]["run"] == run
        mute = api.post(f"/runs/{run}/explain", {"tool": "read"})
        assert mute.status == 409 and "has ended" in mute.json["detail"]
        ended = api.post(f"/runs/{run}/budget", {"tokens": 100})
        assert ended.status == 409 and ended.json["about"] == "budget"


def test_what_there_is_can_be_looked_up() -> None:
    with served() as api:
        run = api.finished()
        assert "read" in {t["name"] for t in api.get("/tools").json["tools"]}
        first = api.get("/models").json["providers"][0]
        prices = {"usd_in", "usd_out", "usd_cached"}
        assert {"provider", "ready", "keys", "default", *prices} == set(first)
        assert all(first[name] > 0 for name in prices if first["default"])
        assert [a["name"] for a in api.get("/definitions").json["agents"]] == ["main"]
        assert api.get("/deliveries").json == {"deliveries": []}
        health = api.get("/health").json
        assert health["open"] == 0 and health["trouble"] == ""
        facts = sandbox_health()
        assert health["sandbox"]["program"] == facts.program
        assert health["sandbox"]["guarantees"] == [one.text for one in facts.guarantees]
        assert health["sandbox"]["problem"] == facts.problem
        assert api.get("/health", token=READER).json["sandbox"] is None
        metrics = api.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert b"retinue_open_runs 0\n" in metrics.body
        assert b'retinue_requests_total{operation="start",status="201"} 1\n' in metrics.body
        missing = api.get("/artifacts/" + "0" * 64)
        assert (
            missing.status == 404 and missing.headers["content-type"] == "application/problem+json"
        )
        assert api.call("DELETE", f"/api/v1/runs/{run}").status == 200
        assert api.get(f"/runs/{run}").status == 404


def test_a_problem_has_the_words_of_the_exception() -> None:
    with served() as api:
        reply = api.get("/runs/nowhere")
        assert reply.json == {
            "type": "about:blank",
            "title": "Not found",
            "status": 404,
            "detail": "Run 'nowhere' not found.",
            "kind": "NotFound",
            "about": "",
        }
        wrong: list[tuple[Any, int]] = [
            ({}, 400),
            ({"task": 7}, 400),
            ({"task": ""}, 400),
            ({"task": "x", "nonsense": 1}, 400),
            ({"task": "x", "agent": "nobody"}, 404),
            ({"task": "x", "terms": {"budget": {"tokens": -1}}}, 400),
            ({"task": "x", "terms": {"rules": ["perhaps: this"]}}, 422),
            ({"task": "x", "terms": {"mode": "whatever"}}, 422),
        ]
        for body, status in wrong:
            reply = api.post("/runs", body)
            assert reply.status == status and reply.json["detail"], (body, reply)
        assert (
            api.call("POST", "/api/v1/runs", raw=b"{", Content_Type="application/json").status
            == 400
        )
        assert api.call("PUT", "/api/v1/runs", {}).status == 405
        assert api.get("/nothing").status == 404


def test_scopes_allow_what_they_say() -> None:
    with served() as api:
        run = api.finished()
        assert api.get(f"/runs/{run}", token=READER).status == 200
        denied = api.post("/runs", {"task": "x"}, token=READER)
        assert denied.status == 403 and "'run'" in denied.json["detail"]
        assert api.post(f"/runs/{run}/answer", {}, token=BOB).status in (403, 404)
        assert api.post("/host/stop", token=ALICE).status == 403
        mode = api.post("/runs", {"task": "x", "terms": {"mode": "auto"}}, token=BOB)
        assert mode.status == 403 and "'approve'" in mode.json["detail"]
        cwd = api.post("/runs", {"task": "x", "terms": {"cwd": "/etc"}}, token=ALICE)
        assert cwd.status == 403 and "'admin'" in cwd.json["detail"]


def test_a_start_that_follows_no_links_refuses_one_that_has_come_since(tmp_path: Path) -> None:
    top = Path(os.path.realpath(tmp_path))
    place = top / "work" / "sub"
    place.mkdir(parents=True)
    terms = {"cwd": str(place), "read": [str(place)], "follow_links": False}

    def recorded(run: str) -> str:
        row = asyncio.run_coroutine_threadsafe(api.retinue.record(run), api.loop).result(SECONDS)
        return row.spec.request.cwd

    def body(terms: dict[str, Any]) -> dict[str, Any]:
        return {"task": "x", "terms": terms}

    with served() as api:
        assert recorded(api.post("/runs", body(terms)).json["run"]) == str(place)
        (top / "work").rename(top / "aside")
        (top / "work").symlink_to("aside")
        for wrong in (terms, {**terms, "cwd": ""}, {**terms, "read": []}):
            refused = api.post("/runs", body(wrong))
            assert refused.status == 409 and "symbolic link" in refused.json["detail"], refused
        followed = api.post("/runs", body({**terms, "follow_links": True})).json["run"]
        assert recorded(followed) == str(top / "aside" / "sub")


def test_the_runs_of_another_user_look_like_unknown_ones() -> None:
    with served() as api:
        hers, ours = api.finished(token=ALICE), api.finished()
        unknown = api.get("/runs/nowhere", token=BOB).json["detail"]
        for run in (hers, ours):
            for path in ("", "/tree", "/transcript", "/outcome", "/events", "/budget"):
                reply = api.get(f"/runs/{run}{path}", token=BOB)
                assert reply.status == 404
                assert reply.json["detail"] == unknown.replace("nowhere", run)
            for verb in ("messages", "resume", "fork", "retry"):
                body = {"task": "x"} if verb in ("resume", "fork") else {}
                body = {"text": "x"} if verb == "messages" else body
                assert api.post(f"/runs/{run}/{verb}", body, token=BOB).status == 404
            assert api.post("/cancel", {"runs": [run]}, token=BOB).status == 404
            assert api.post("/wait", {"runs": [run]}, token=BOB).status == 404
        assert api.get("/runs", token=BOB).json["runs"] == []
        assert [r["id"] for r in api.get("/runs", token=ALICE).json["runs"]] == [hers]
        assert {r["id"] for r in api.get("/runs").json["runs"]} == {hers, ours}
        forked = api.post(f"/runs/{hers}/fork", {"task": "x"}, token=ALICE).json["run"]
        assert api.get(f"/runs/{forked}", token=ALICE).status == 200


LONG = "a long line of what only alice may read\n" * 4_000


@tool(restart="pure")
def long_page() -> str:
    """A page that is too long to be shown whole."""
    return LONG


def test_an_artifact_of_another_user_looks_like_an_unknown_one(tmp_path: Path) -> None:
    """Whether the store is a file or in memory; who sees all runs sees all artifacts."""
    for store in (None, tmp_path / "store.db"):
        agent = Agent("main", model=Scripted([call("long_page"), "Done."]), tools=[long_page])
        with served(agents=[agent], store=store) as api:
            run = api.finished(token=ALICE)
            text = api.get(f"/runs/{run}/transcript", token=ALICE).body.decode()
            (sha256,) = set(re.findall(r"artifact ([0-9a-f]{64})", text))
            hers = api.get(f"/artifacts/{sha256}", token=ALICE)
            assert (hers.status, hers.body.decode()) == (200, LONG)
            assert api.get(f"/artifacts/{sha256}").body == hers.body
            assert api.get(f"/artifacts/{sha256}", token=READER).body == hers.body
            theirs = api.get(f"/artifacts/{sha256}", token=BOB)
            unknown = api.get("/artifacts/" + "0" * 64, token=BOB)
            assert theirs.status == unknown.status == 404
            assert theirs.json["detail"] == unknown.json["detail"].replace("0" * 64, sha256)


def test_an_announcement_that_is_not_there_is_not_sent_again() -> None:
    with served() as api:
        reply = api.post("/deliveries/nothing", {})
        assert reply.status == 404 and reply.json["detail"] == "Announcement 'nothing' not found."


def test_an_announcement_of_another_user_looks_like_an_unknown_one() -> None:
    class Announced:
        """A runtime in which one announcement, of bob's, waits."""

        async def deliveries(self, *, state: object = ()) -> AsyncIterator[Delivery]:
            yield Delivery(key="k", run="r", origin=Origin(user="bob"), text="done")

    visibility = Visibility(Announced())
    alice, bob = (Identity(name, frozenset({"admin"}), user=name) for name in ("alice", "bob"))
    asyncio.run(visibility.check_delivery("k", bob))
    asyncio.run(visibility.check_delivery("k", OWNER))
    with pytest.raises(NotFound, match="Announcement 'k' not found"):
        asyncio.run(visibility.check_delivery("k", alice))


def test_figures_for_a_user_count_what_that_user_sees() -> None:
    go = threading.Event()

    @tool(restart="pure")
    def hold() -> str:
        """Wait until the test has looked."""
        assert go.wait(SECONDS)
        return "held"

    agent = Agent("main", model=Scripted([call("hold"), "Done."]), tools=[hold])
    with served(agents=[agent]) as api:
        run = api.start(token=ALICE)
        figures = {who: api.get("/metrics", token=who).body.decode() for who in (ALICE, BOB, ADMIN)}
        health = {who: api.get("/health", token=who).json["open"] for who in (ALICE, BOB, ADMIN)}
        go.set()
        assert api.post("/wait", {"runs": [run]}, token=ALICE).json["states"] == {run: "completed"}
    started = 'retinue_requests_total{operation="start",status="201"}'
    for who, n in ((ALICE, 1), (ADMIN, 1), (BOB, 0)):
        assert f"retinue_open_runs {n}\n" in figures[who]
        assert (f"{started} 1\n" in figures[who]) == bool(n)
        assert health[who] == n


def test_the_description_that_is_checked_in_is_the_one_that_is_served() -> None:
    value = json.loads(DOCUMENT.read_text())
    assert value == json.loads(json.dumps(description())), "run `make docs`"
    with served() as api:
        assert api.get("/openapi.json").json == value
        assert api.get("/openapi.json", token=None).status == 401
