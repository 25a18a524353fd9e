"""The same for programs that use the library: pages of the web, announcements, previews, and keys
that nobody but a model or a channel was given."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from retinue import Agent, Origin, Permissions, Retinue, tool
from retinue.channels.file import JsonLines
from retinue.channels.webhook import Webhook
from retinue.models.base import ModelRequest
from retinue.runtime.secret_filter import Redacting
from retinue.runtime.text_pieces import TextPiece
from retinue.testing import Scripted, call
from retinue.tools.builtin.fetch import FetchTool
from retinue.tools.families.profiles import family
from tests.security.canaries import Search, every_form, planted

SECRETS = planted("PAGE_TOKEN", "MODEL_KEY", "WEBHOOK_SECRET", "LATE_TOKEN")


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        value = SECRETS["PAGE_TOKEN"]
        if self.path == "/long":
            text = "".join("p" * (31_990 + n) + value + "\n" for n in (0, 3, 9, 1))
        elif self.path == "/half":  # tags are gone when it is shown, so here they hide nothing
            text = f"<p><span>{value[:12]}</span>{value[12:]}</p>"
        else:
            text = (
                f"<title>{'t' * 290}{value}</title><img "
                f"alt='{'a' * 490}{value}'>{every_form([value])}"
            )
        body = text.encode()
        self.send_response(404 if self.path == "/error" else 200)
        self.send_header("content-type", "text/plain" if self.path == "/long" else "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        return


@contextmanager
def pages() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Keyed(Scripted):
    """A model that was given its key by hand, and says it."""

    secrets: ClassVar = {"MODEL_KEY": SECRETS["MODEL_KEY"]}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_no_secret_of_a_program_is_written_or_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    search, path = Search(SECRETS), tmp_path / "told.jsonl"
    questions: list[str] = []
    environment = {"PAGE_TOKEN": SECRETS["PAGE_TOKEN"]}
    (tmp_path / "first.txt").write_text("f" * 32_750 + SECRETS["PAGE_TOKEN"] + " more")
    caplog.set_level(logging.DEBUG)

    @tool(restart="pure")
    def late() -> str:
        """Say what was learned late."""
        return (
            f"it is {SECRETS['LATE_TOKEN']}, {SECRETS['WEBHOOK_SECRET']} and {SECRETS['MODEL_KEY']}"
        )

    @tool(restart="pure")
    def fails() -> str:
        """Fail with a text that is cut."""
        raise ValueError("e" * 65_500 + SECRETS["PAGE_TOKEN"])

    async def main(port: int) -> None:
        urls = [f"http://127.0.0.1:{port}/{name}" for name in ("long", "page", "error")]
        turns: list[Any] = [
            [
                call("fetch", url=url, format=form)
                for url in urls
                for form in ("markdown", "text", "raw")
            ],
            [
                call("fetch", url=f"http://127.0.0.1:{port}/half", format=form)
                for form in ("markdown", "text")
            ],
            [call("fetch", url=urls[0], offset=31_980 + n) for n in range(0, 40, 3)],
            [call("late"), call("fails")],
            call("spawn_agents", tasks=[{"task": "Look.", "read_first": ["first.txt"]}]),
            f"I say {every_form(SECRETS.values())}",
        ]

        def say(request: ModelRequest) -> Any:
            questions.append(repr((request.instructions, tuple(request.messages))))
            return (
                turns[request.turn]
                if request.agent == "lead"
                else call("submit_result", result="Looked.")
            )

        channels = {
            "file": JsonLines(path),
            "hook": Webhook(f"http://127.0.0.1:{port}/hook", SECRETS["WEBHOOK_SECRET"]),
        }
        store = tmp_path / "store" / "r.db"
        store.parent.mkdir()
        async with Retinue(
            store, secrets=environment, channels=channels, workspace=tmp_path
        ) as retinue:
            caplog.handler.addFilter(Redacting(retinue.redactor))
            retinue.redactor.learn({"LATE_TOKEN": SECRETS["LATE_TOKEN"]})
            lead = Agent(
                "lead",
                model=Keyed(say, name="m"),
                tools=["read", FetchTool(allow=[f"127.0.0.1:{port}"]), late, fails],
                families=[family("fanout")],
            )
            access = Permissions(hosts=("*",), mode="bypassPermissions")
            origin = Origin(channel="file", user="u", thread="t")
            run = await retinue.spawn(lead, "Go.", permissions=access, origin=origin, announce=True)
            records = [repr(item) async for item in retinue.steps(run, tree=False, deltas=True)]
            search.look("the stream", "\n".join(records))
            search.look("the messages", repr(await retinue.messages(run)))
            assert await retinue.settle(timeout=120)
            logging.getLogger("retinue").error("by hand: %s", every_form(SECRETS.values()))

    with pages() as port:
        asyncio.run(main(port))
    search.look_below(tmp_path / "store")
    search.look("the announcement", path.read_bytes())
    search.look("the log", caplog.text)
    search.look("what models were asked", "\n".join(questions))
    assert any("f" * 1_000 in text for text in questions), "the file was handed over"
    assert search.found == []


def test_whoever_begins_to_watch_in_the_middle_of_a_secret_sees_no_rest_of_it() -> None:
    secret = SECRETS["PAGE_TOKEN"]
    half, go_on = asyncio.Event(), asyncio.Event()

    class Slow:
        info = Scripted([""], name="slow").info

        async def complete(self, request: ModelRequest, emit: Any) -> Any:
            emit(f"it is {secret[:12]}")
            half.set()
            await go_on.wait()
            emit(f"{secret[12:]}.")
            return await Scripted([f"it is {secret}."]).complete(request, lambda _: None)

    async def main() -> str:
        async with Retinue(secrets={"TOKEN": secret}) as retinue:
            run = await retinue.spawn(Agent("a", model=Slow()), "Go.")
            await half.wait()
            rows = []
            async for item in retinue.steps(run, tree=False, deltas=True):
                go_on.set()
                rows += [item.text] if isinstance(item, TextPiece) else []
            return "".join(rows)

    assert secret[12:22] not in asyncio.run(main())


def test_a_secret_in_the_id_of_a_call_or_in_a_name_inside_of_data_is_not_kept(
    tmp_path: Path,
) -> None:
    secret = SECRETS["PAGE_TOKEN"]

    @tool(restart="pure")
    def look() -> str:
        """Look."""
        return "seen"

    class Naming(Scripted):
        async def complete(self, request: ModelRequest, emit: Any) -> Any:
            reply = await super().complete(request, emit)
            calls = tuple(replace(c, id=f"{c.id}-{secret}") for c in reply.message.calls)
            return replace(reply, message=replace(reply.message, calls=calls))

    async def main() -> None:
        async with Retinue(tmp_path / "r.db", secrets={"TOKEN": secret}) as retinue:
            model = Naming(
                [[call("look"), call("look")], call("submit_result", result={secret: 1})], name="m"
            )
            agent = Agent("a", model=model, tools=[look], output=dict[str, int])
            outcome = await retinue.run(agent, "Go.")
            assert outcome.output == {"[redacted:TOKEN]": 1}, outcome

    asyncio.run(main())
    search = Search({"TOKEN": secret})
    search.look_below(tmp_path)
    assert search.found == []
