"""Streams of events: many clients, a server that is killed in the middle, and clients of others."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.host.served import ADMIN, TOKENS, events_of, served
from tests.host.streams import StreamServer, follow, many
from tests.waiting import SECONDS

CURL = shutil.which("curl")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def test_each_of_many_clients_gets_every_event_in_order(tmp_path: Path) -> None:
    """The full measure, 500 clients with 200 events each, is `python -m tests.host.streams`."""
    server = StreamServer(tmp_path, 101)
    server.start()
    try:
        result = asyncio.run(many(server, 40))
    finally:
        server.kill()
    assert result.n_complete == 40 and result.n_events >= 200
    assert result.peak_bytes < 20_000_000


def test_a_client_that_comes_back_to_a_restarted_server_misses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    server = StreamServer(tmp_path, 60)
    server.start()

    async def first() -> tuple[str, list[int]]:
        run = await server.begin()
        server.open()
        ids, is_ended = await follow(server.port, run, asyncio.Event(), until=25)
        assert len(ids) == 25 and not is_ended
        return run, ids

    async def rest(run: str, ids: list[int]) -> tuple[list[int], list[int]]:
        while True:
            more, is_ended = await follow(server.port, run, asyncio.Event(), after=ids[-1])
            ids = ids + more
            if is_ended:
                break
        whole, _ = await follow(server.port, run, asyncio.Event())
        return ids, whole

    try:
        run, ids = asyncio.run(first())
        server.kill()
        server.start()
        record, whole = asyncio.run(rest(run, ids))
    finally:
        server.kill()
    assert record == whole and len(whole) > 100 and whole == sorted(set(whole))


def test_who_comes_back_after_the_end_is_told_to_stay_away() -> None:
    with served() as api:
        run = api.finished()
        events = events_of(api.get(f"/runs/{run}/events").body)
        last = events[-2]["id"]
        assert events[-1]["event"] == "end"
        again = api.get(f"/runs/{run}/events", Last_Event_ID=last)
        assert again.status == 204 and again.body == b""
        one = api.get(f"/runs/{run}/events", Last_Event_ID=str(int(last) - 1))
        assert [e.get("id", e["event"]) for e in events_of(one.body)] == [last, "end"]


def test_a_message_that_comes_again_has_the_same_number() -> None:
    """What a reader was surely told of is not repeated; what was not is not left out."""
    with served(["First.", "Second."]) as api:
        run = api.finished()
        events = [json.loads(e["data"]) for e in events_of(api.get(f"/runs/{run}/events").body)]
        steps = [e for e in events if "seq" in e and "entry" in e]
        numbers = [m["n"] for s in steps for m in s.get("messages", ())]
        assert numbers == [0, 1]
        for step in steps:
            late = api.get(f"/runs/{run}/events?after={step['seq']}")
            texts = {
                m["n"]
                for e in events_of(late.body)
                if e["event"] == "step"
                for m in json.loads(e["data"]).get("messages", ())
            }
            before = {
                m["n"] for s in steps if s["seq"] <= step["seq"] for m in s.get("messages", ())
            }
            assert texts | before == {0, 1}


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_curl_follows_a_run(tmp_path: Path) -> None:
    assert CURL is not None
    with served() as api:
        run = api.start()
        address = f"http://127.0.0.1:{api.port}/api/v1/runs/{run}/events"
        process = subprocess.run(
            [CURL, "-sSN", "-H", f"Authorization: Bearer {ADMIN}", address],
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
        assert events_of(process.stdout)[-1]["event"] == "end"


def test_httpx_follows_a_run() -> None:
    import httpx2

    with served() as api:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        with httpx2.Client(base_url=f"http://127.0.0.1:{api.port}", headers=headers) as client:
            run = client.post("/api/v1/runs", json={"task": "x"}).raise_for_status().json()["run"]
            with client.stream("GET", f"/api/v1/runs/{run}/events") as reply:
                lines = list(reply.iter_lines())
        assert "event: end" in lines and any(line.startswith("id: ") for line in lines)


PAGE = """<!doctype html><title>test</title><script>
const report = value => fetch("/report", {method: "POST", body: JSON.stringify(value)});
const ids = [];
fetch("/api/v1/health?code=CODE").then(reply => {
  const source = new EventSource("/api/v1/runs/RUN/events");
  source.addEventListener("step", event => ids.push(Number(event.lastEventId)));
  source.addEventListener("end", () => { source.close(); report({status: reply.status, ids}); });
}).catch(error => report({error: String(error)}));
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: no EventSource to try")
def test_the_event_source_of_a_browser_follows_a_run(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    from tests.host.mounted import mounted_service

    results: list[Any] = []
    event = threading.Event()

    def report(value: Any) -> None:
        results.append(value)
        event.set()

    with mounted_service(PAGE, report) as service:
        run = service.finished()
        service.texts.update(RUN=run, CODE=service.guard.keyring.new_code(TOKENS[0].identity))
        browser = subprocess.Popen(
            [
                CHROMIUM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={tmp_path}",
                f"http://127.0.0.1:{service.port}/page",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert event.wait(SECONDS), "the browser did not report"
        finally:
            browser.kill()
            browser.wait(SECONDS)
        steps = [
            int(e["id"]) for e in events_of(service.get(f"/runs/{run}/events").body) if "id" in e
        ]
    assert results == [{"status": 200, "ids": steps}]
