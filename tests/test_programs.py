"""The programs in examples/programs, as they are: models are names, their providers are one fake
provider on loopback, and people type at a prompt. One is killed in the middle."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from retinue import AssistantMessage, ModelReply, Usage
from retinue.testing import FakeLLM, call, submit
from retinue.testing.fake_llm import ParsedRequest
from retinue.testing.fake_llm.background import served
from tests.channels.receiver import SECRET, Receiver
from tests.waiting import SECONDS

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "examples" / "programs"


class Stage:
    """A folder, a fake provider and a terminal for one program."""

    def __init__(self, llm: FakeLLM, patch: pytest.MonkeyPatch) -> None:
        self.llm, self._patch = llm, patch

    def run(self, name: str, *args: str, types: tuple[str, ...] = ()) -> None:
        lines = iter(types)

        def read(prompt: str = "") -> str:
            sys.stdout.write(f"{prompt}\n")
            return next(lines)

        self._patch.setattr("builtins.input", read)
        self._patch.setattr(sys, "argv", [name, *args])
        runpy.run_path(str(PROGRAMS / name), run_name="__main__")
        self.llm.check()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.chdir(tmp_path)
    with served(FakeLLM()) as llm:
        for name, value in environment(llm).items():
            monkeypatch.setenv(name, value)
        yield Stage(llm, monkeypatch)


def environment(llm: FakeLLM) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": "sk-fake",
        "OPENAI_BASE_URL": f"{llm.url}/v1",
        "ANTHROPIC_API_KEY": "sk-ant-fake",
        "ANTHROPIC_BASE_URL": llm.url,
        "HOUSE_URL": f"{llm.url}/v1",
    }


def last(request: ParsedRequest) -> str:
    return request.messages[-1].text


def by_turn(*lines: Any) -> Callable[[ParsedRequest], Any]:
    """One line a turn; the last one is what the model was told."""
    return lambda request: lines[request.turn] if request.turn < len(lines) else last(request)


def test_each_program_is_run_here() -> None:
    here = Path(__file__).read_text()
    names = {path.name for path in PROGRAMS.glob("*.py")} - {"own_agents.py"}
    assert len(names) == 12 and [name for name in names if f'"{name}"' not in here] == []


def test_hello(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.llm.script = ["Because of the air."]
    stage.run("hello.py")
    assert "Because of the air.\ncompleted: " in capsys.readouterr().out


def test_typed_result(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.llm.script = [submit({"number": "2024-17", "total": "12.50"})]
    stage.run("typed_result.py")
    assert capsys.readouterr().out == "Pay 12.50 for 2024-17.\n"


def test_review_tool(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    def script(request: ParsedRequest) -> Any:
        if request.model == "gpt-5-mini":
            name = request.messages[0].text
            return submit({"path": name, "points": len(name), "advice": "shorten"})
        return last(request) if request.turn else call("weakest", paths=["a.py", "bb.py", "c"])

    stage.llm.script = script
    stage.run("review_tool.py")
    assert capsys.readouterr().out == "c: shorten\na.py: shorten\n"


def test_shop(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.llm.script = by_turn(
        call("sell", item="apple"), [call("price", item="apple", n=2), call("sell", item="cigar")]
    )
    stage.run("shop.py")
    assert "Refused: We do not sell tobacco. [('ada', 'apple')]" in capsys.readouterr().out


def test_own_tools(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    booking = {"table": 3, "day": "2026-05-01", "guests": 5}
    stage.llm.script = by_turn(
        call("menu", dish="soup"),
        call("book", booking={**booking, "guests": 40}),
        call("is_free", table=3, day="2026-05-01"),
        call("book", booking=booking, seating="early"),
    )
    stage.run("own_tools.py")
    assert capsys.readouterr().out == "Table 3 is yours for the early seating.\n"
    results = [r.messages[-1].text for r in stage.llm.requests[1:]]
    assert results[0] == "6.5" and "12" in results[1] and results[2] == "true"


def test_approval(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.llm.script = by_turn(call("choose_colour", item="shirts"), call("order", item="x", n=40))
    stage.run("approval.py", types=("blue", "y"))
    out = capsys.readouterr().out
    assert "Which colour for the shirts? red, blue" in out
    assert "order {'item': 'x', 'n': 40}? [y/n]" in out
    assert out.splitlines()[-1].startswith("Ordered 40 x, receipt ")
    assert "The customer wants blue." in stage.llm.requests[1].messages[-1].text


def test_two_providers(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    def script(request: ParsedRequest) -> str:
        if request.dialect == "anthropic":
            return "It rains."
        return "IT RAINS." if "capitals" in request.system else "Rain."

    stage.llm.script = script
    stage.run("two_providers.py")
    assert "IT RAINS.\nchosen by claude-opus-5-5, $0." in capsys.readouterr().out
    bodies = {r.model: r.body for r in stage.llm.requests}
    assert bodies["large"]["temperature"] == 1.0 and bodies["small"]["seed"] == 7
    assert "thinking" in bodies["claude-opus-5-5"]


def test_explorers(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    Path("src").mkdir()

    def script(request: ParsedRequest) -> Any:
        if "haiku" in request.model:
            return "Nothing gets lost."
        tasks = [{"task": "Look at errors.", "mode": "explore"}]
        return "All is caught." if request.turn else call("spawn_agents", tasks=tasks)

    stage.llm.script = script
    stage.run("explorers.py")
    out = capsys.readouterr().out
    assert out.startswith("All is caught.\n  ") and ": completed\nlead" in out


def test_watch_tree(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.llm.script = ["Seen."]
    stage.run("watch_tree.py", "Look around.")
    out = capsys.readouterr().out
    assert "lead starts on openai:gpt-5: Look around." in out and "lead completed after" in out


def test_limits(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """At its limit it asks; a person adds something, then no more, and the work lands."""
    costly = Usage(input=100, output=8_000)

    def script(request: ParsedRequest) -> ModelReply:
        message = AssistantMessage(text="There is room.", calls=(call("task_status"),))
        return ModelReply(message=message, usage=costly, stop="calls")

    stage.llm.script = script
    stage.run("limits.py", types=("0.50", "", "", "", ""))
    out = capsys.readouterr().out
    assert out.startswith("Spent $0.") and "incomplete: There is room." in out


def test_service(stage: Stage) -> None:
    stage.llm.script = [submit({"title": "Rain", "findings": ["It is wet."]})]
    app = runpy.run_path(str(PROGRAMS / "service.py"))["app"]
    with TestClient(app) as client:
        wish = {"topic": "Rain", "user": "ada"}
        headers = {"idempotency-key": "1"}
        run = client.post("/reports", json=wish, headers=headers).json()["run"]
        assert client.post("/reports", json=wish, headers=headers).json()["run"] == run
        events = client.get(f"/reports/{run}/events").text
        assert '"type":"run_started"' in events and '"type":"run_ended"' in events
        seq = events.split("id: ")[-1].split()[0]
        rest = client.get(f"/reports/{run}/events", headers={"last-event-id": seq}).text
        assert rest == ""
        report = {"title": "Rain", "findings": ["It is wet."]}
        assert client.get(f"/reports/{run}").json() == report
        assert client.get("/reports/none").json() == {"error": "There is no report none."}


def start(name: str, cwd: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, PROGRAMS / name], cwd=cwd, env=env, stdout=subprocess.PIPE, text=True
    )


def test_webhook_with_kill_9(tmp_path: Path) -> None:
    """Killed while a build is under way; started again, each build is done and told once."""
    building, may_end = threading.Event(), threading.Event()
    builds: list[str] = []

    def script(request: ParsedRequest) -> Any:
        if request.model == "gpt-5-mini":
            builds.append(request.messages[0].text)
            building.set()
            may_end.wait(SECONDS if len(builds) == 1 else 0)
            return f"{request.messages[0].text} Done."
        return "Builds have started." if request.turn else call("start_build", branch="main")

    async def story() -> list[str]:
        async with Receiver() as receiver:
            with served(FakeLLM(lambda request: asyncio.to_thread(script, request))) as llm:
                path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
                hook = {"HOOK_URL": receiver.url, "HOOK_SECRET": SECRET, "PYTHONPATH": path}
                env = {**os.environ, **environment(llm), **hook}
                with start("webhook.py", tmp_path, env) as first:
                    assert await asyncio.to_thread(building.wait, SECONDS)
                    first.send_signal(signal.SIGKILL)
                may_end.set()
                with start("webhook.py", tmp_path, env) as second:
                    out, _ = await asyncio.to_thread(second.communicate, None, SECONDS)
                assert (second.returncode, out) == (0, "Builds have started.\n")
                return receiver.texts

    texts = asyncio.run(story())
    assert len(texts) == 1 and "Build main. Done." in texts[0]
    assert len(builds) == 2
