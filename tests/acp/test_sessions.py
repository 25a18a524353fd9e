"""Sessions of an editor, through the client of the official package and real processes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from acp import PROTOCOL_VERSION, RequestError, schema

from retinue.testing import call
from tests.acp.editor import FORMS, Editor, new_session, opened
from tests.cli.private_home import Gate, private_home
from tests.tools.mcp.client_support import FAKE
from tests.waiting import until

CONTENT = FAKE.with_name("content_server.py")


def results(request: Any) -> list[str]:
    return [m.text for m in request.messages if type(m).__name__ == "ToolMessage"]


def writer(request: Any) -> Any:
    """Writes a file for the first message, and speaks from then on."""
    if not results(request):
        return call("write", path="made.txt", content="hello\n")
    n = sum(type(m).__name__ == "UserMessage" for m in request.messages)
    return f"Answer {n}."


def test_a_conversation_streams_asks_continues_and_is_found_again(tmp_path: Path) -> None:
    async def first() -> str:
        async with opened(home, Editor("allow")) as editor:
            session = await new_session(home, editor)
            end = await editor.prompt(session, "write a file")
            assert (end.stop_reason, editor.text()) == ("end_turn", "Answer 1.")
            assert end.usage.total_tokens > 0
            (start,) = editor.of("tool_call")
            assert (start.title, start.kind) == ("write made.txt, 1 line", "edit")
            assert [place.path for place in start.locations] == [str(home.project / "made.txt")]
            assert [(c.type, c.new_text) for c in start.content] == [("diff", "hello\n")]
            assert editor.statuses(start.tool_call_id) == ["in_progress", "completed"]
            ((question, options),) = editor.permissions
            assert (
                question.tool_call_id == start.tool_call_id
                and (question.content or [])[0].type == "diff"
            )
            kinds = [option.kind for option in options]
            assert kinds == ["allow_once", "allow_always", "reject_once"]
            assert (home.project / "made.txt").read_text() == "hello\n"
            assert [u.title for u in editor.of("session_info_update")] == ["write a file"]
            await editor.prompt(session, "and now?")
            assert editor.text() == "Answer 1.Answer 2."
            return session

    async def second(session: str) -> None:
        async with opened(home, Editor()) as editor:
            where = str(home.project)
            (name,) = (await editor.agent.list_sessions(cwd=where)).sessions
            assert (name.session_id, name.title, name.cwd) == (session, "and now?", where)
            loaded = await editor.agent.load_session(cwd=where, session_id=session, mcp_servers=[])
            assert loaded.modes.current_mode_id == "manual"
            assert editor.text("user_message_chunk") == "write a fileand now?"
            assert editor.text() == "Answer 1.Answer 2."
            (start,) = editor.of("tool_call")
            assert editor.statuses(start.tool_call_id)[-1] == "completed"
            await editor.prompt(session, "once more")
            assert editor.text() == "Answer 1.Answer 2.Answer 3."
            editor.updates.clear()
            forked = await editor.agent.fork_session(cwd=where, session_id=session, mcp_servers=[])
            await editor.prompt(forked.session_id, "otherwise")
            assert editor.text() == "Answer 4."
            sessions = (await editor.agent.list_sessions(cwd=where)).sessions
            assert [s.session_id for s in sessions] == [forked.session_id, session]

    with private_home(tmp_path, writer) as home:
        session = asyncio.run(first())
        asyncio.run(second(session))
        labels = {run["label"] for run in home.runs()}
        assert session in labels and len(labels) == 2


def test_sub_agents_are_entries_of_the_plan_and_tool_calls(tmp_path: Path) -> None:
    def lead(request: Any) -> Any:
        if "part" in str(request.messages[0].text):
            return "Part done."
        if results(request):
            return "Both are done."
        tasks = [{"task_id": f"p{n}", "prompt": f"part {n}", "tools": []} for n in (1, 2)]
        return call("delegate_tasks", mode="parallel", tasks=tasks)

    async def main() -> None:
        async with opened(home, Editor()) as editor:
            session = await new_session(home, editor)
            end = await editor.prompt(session, "do it")
            assert (end.stop_reason, editor.text()) == ("end_turn", "Both are done.")
            assert [status for _, status in editor.plan] == ["completed", "completed"]
            assert sorted("part 1" in text for text, _ in editor.plan) == [False, True]
            children = [c for c in editor.of("tool_call") if c.tool_call_id.startswith("run/")]
            assert len(children) == 2
            for child in children:
                statuses = editor.statuses(child.tool_call_id)
                assert statuses[0] == "pending" and statuses[-1] == "completed"
            ends = [u for u in editor.of("tool_call_update") if u.status == "completed"]
            assert sum("Part done." in str(u.content) for u in ends) >= 2

    with private_home(tmp_path, lead) as home:
        asyncio.run(main())


def test_a_cancelled_prompt_ends_as_cancelled_and_the_session_goes_on(tmp_path: Path) -> None:
    gate = Gate("Done.")

    async def main() -> None:
        async with opened(home, Editor()) as editor:
            session = await new_session(home, editor)
            turn = asyncio.create_task(editor.prompt(session, "think"))
            await until(gate.reached.is_set)
            with pytest.raises(RequestError, match="still at work"):
                await editor.prompt(session, "another")
            await editor.agent.cancel(session_id=session)
            assert (await turn).stop_reason == "cancelled"
            gate.opened.set()
            assert (await editor.prompt(session, "again")).stop_reason == "end_turn"
            assert editor.text() == "Done."

    with private_home(tmp_path, gate) as home:
        asyncio.run(main())
        assert sorted(run["state"] for run in home.runs()) == ["cancelled", "completed"]


def test_a_process_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    gate = Gate("The result.")
    where = str(tmp_path / "project")

    async def begin() -> str:
        async with opened(home, Editor()) as editor:
            session = await new_session(home, editor)
            turn = asyncio.create_task(editor.prompt(session, "think"))
            await until(gate.reached.is_set)
            editor.process.kill()
            with pytest.raises(ConnectionError):
                await turn
            return session

    async def load(session: str, *, is_open: bool) -> None:
        async with opened(home, Editor()) as editor:
            await editor.agent.load_session(cwd=where, session_id=session, mcp_servers=[])
            assert editor.text("user_message_chunk") == "think"
            assert is_open == (editor.text() == "")
            gate.opened.set()
            await until(lambda: editor.text() == "The result.")

    with private_home(tmp_path, gate) as home:
        session = asyncio.run(begin())
        asyncio.run(load(session, is_open=True))
        asyncio.run(load(session, is_open=False))
        assert len(gate.heard) == 1


def asker(request: Any) -> Any:
    text = results(request)
    if len(text) == 2:
        return f"You said {text[0]} and {text[1]}."
    if text:
        return call("ask", question="Which name?")
    return call("ask", question="Which colour?", options=["red", "blue"])


@pytest.mark.parametrize("has_forms", [True, False])
def test_questions_are_answered_by_a_choice_a_form_or_the_next_prompt(
    tmp_path: Path, has_forms: bool
) -> None:
    async def main() -> None:
        editor = Editor("choice/1", answers=("Ada",))
        capabilities = FORMS if has_forms else None
        async with opened(home, editor, capabilities=capabilities):
            session = await new_session(home, editor)
            assert (await editor.prompt(session, "ask me")).stop_reason == "end_turn"
            ((_, options),) = editor.permissions
            assert [option.name for option in options] == ["red", "blue", "Do not answer"]
            if not has_forms:
                assert "Which name?" in editor.text() and "You said" not in editor.text()
                await editor.prompt(session, "Ada")
            assert editor.text().endswith("You said blue and Ada.")
            assert len(editor.forms) == has_forms

    with private_home(tmp_path, asker) as home:
        asyncio.run(main())
        assert len(home.runs()) == 1


def test_a_denied_call_a_mode_another_model_and_a_server_of_the_editor(tmp_path: Path) -> None:
    def script(request: Any) -> Any:
        task = next(m.text for m in reversed(request.messages) if type(m).__name__ == "UserMessage")
        last = request.messages[-1]
        if type(last).__name__ == "ToolMessage":
            return f"[{last.text}]"
        if "echo" in task:
            return call("mcp__fake__echo", text="hi")
        return call("write", path=f"{task}.txt", content="x")

    async def main() -> None:
        server = schema.McpServerStdio(
            name="fake", command=sys.executable, args=["-I", "-S", str(FAKE)], env=[]
        )
        async with opened(home, Editor("reject", "allow")) as editor:
            result = await editor.agent.new_session(cwd=str(home.project), mcp_servers=[server])
            session = result.session_id
            option = next(o for o in result.config_options if o.id == "model")
            assert option.current_value == "openai-chat:scripted"
            await editor.prompt(session, "one")
            (start,) = editor.of("tool_call")
            assert editor.statuses(start.tool_call_id)[-1] == "failed"
            await editor.agent.set_session_mode(session_id=session, mode_id="acceptEdits")
            await editor.prompt(session, "two")
            assert (home.project / "two.txt").exists() and not (home.project / "one.txt").exists()
            await editor.prompt(session, "echo it")
            assert editor.text().endswith("[hi]") and len(editor.permissions) == 2
            changed = await editor.agent.set_config_option(
                session_id=session, config_id="model", value="offline/explorer"
            )
            assert "offline/explorer" in [o.current_value for o in changed.config_options]
            await editor.prompt(session, "where is add defined?")
            for work in (
                editor.agent.set_session_mode(session_id=session, mode_id="wild"),
                editor.agent.set_config_option(session_id=session, config_id="model", value="x"),
                editor.agent.new_session(cwd="here", mcp_servers=[]),
                editor.agent.load_session(
                    cwd=str(home.project), session_id="acp-none", mcp_servers=[]
                ),
                editor.prompt("acp-none", "hello"),
                editor.prompt(session, " "),
                editor.agent.prompt(
                    session_id=session,
                    prompt=[schema.ImageContentBlock(type="image", data="", mime_type="image/png")],
                ),
                editor.agent.authenticate(method_id="other"),
            ):
                with pytest.raises(RequestError):
                    await work
            await editor.agent.authenticate(method_id="keys")

    with private_home(tmp_path, script) as home:
        asyncio.run(main())
        models = {run["model"] for run in home.runs()}
        assert models == {"openai-chat:scripted", "offline/explorer"}


def test_a_rejected_key_ends_the_turn_with_what_to_do(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(home, Editor()) as editor:
            session = await new_session(home, editor)
            with pytest.raises(RequestError, match="key") as error:
                await editor.prompt(session, "hello")
            assert error.value.code == -32000

    with private_home(tmp_path) as home:
        home.llm.refused_keys["sk-very-secret"] = "F10"
        asyncio.run(main())


def test_prompts_of_servers_are_commands_of_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        args = ["-I", "-S", str(CONTENT)]
        server = schema.McpServerStdio(name="notes", command=sys.executable, args=args, env=[])
        async with opened(home, Editor()) as editor:
            session = await editor.agent.new_session(cwd=str(home.project), mcp_servers=[server])
            (offer,) = await until(lambda: editor.of("available_commands_update"))
            names = [command.name for command in offer.available_commands]
            assert names == ["notes:summarize", "notes:talk"]
            await editor.prompt(session.session_id, "/notes:summarize topic=May")
            assert editor.text() == "[Summarize May: -]"
            with pytest.raises(RequestError, match="notes/none"):
                await editor.prompt(session.session_id, "/notes:none")

    with private_home(tmp_path, lambda request: f"[{request.messages[-1].text}]") as home:
        asyncio.run(main())


def test_nothing_but_the_protocol_is_on_stdout(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        ask = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
        messages = [
            "this is no JSON",
            "[]",
            json.dumps({**ask, "params": {"protocolVersion": PROTOCOL_VERSION}}),
            json.dumps({**ask, "id": 2, "method": "session/new", "params": {"cwd": 3}}),
            json.dumps({**ask, "id": 3, "method": "no/such"}),
        ]
        process = home.start("acp", stdin=-1)
        process.stdin.write("".join(line + "\n" for line in messages))
        process.stdin.flush()
        replies = [json.loads(process.stdout.readline()) for _ in range(5)]
        rest, _ = process.communicate(timeout=60)
        codes = [(r["id"], r["error"]["code"]) for r in replies if "error" in r]
        assert codes[:2] == [(None, -32700), (None, -32600)]
        assert sorted(codes[2:]) == [(2, -32602), (3, -32601)] and rest == ""
        assert [r["id"] for r in replies if "result" in r] == [1]
