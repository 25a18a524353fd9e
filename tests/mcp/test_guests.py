"""Each client is a guest: it sees only its own, and spends only what it was given."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from retinue.mcp.guests import (
    Guest,
    RunCharge,
    guest_name,
    shares,
    terms_of,
    work_directory,
)
from retinue.mcp.task_ids import runs_of, task_id
from retinue.mcp.tool_arguments import ToolProblem
from retinue.testing import call
from tests.cli.private_home import Gate, private_home
from tests.mcp.http_guest import ALICE, CAROL, HttpGuest, served
from tests.mcp.raw_client import TASKS, RawClient, envelope, first_id

RUN = "00000000-0000-7337-ae74-c6759b788c6d"


def test_two_clients_never_see_each_other(tmp_path: Path) -> None:
    with private_home(tmp_path) as home, RawClient(home) as one, RawClient(home) as two:
        one.initialize("2025-06-18", name="one")
        two.initialize("2025-06-18", name="two")
        mine = first_id(one.tool("delegate", tasks=["say it"]))
        yours = first_id(two.tool("delegate", tasks=["say it"]))
        for client, own, other in ((one, mine, yours), (two, yours, mine)):
            listed = client.tool("agents")["structuredContent"]["agents"]
            assert [a["id"] for a in listed] == [own]
            for tool, arguments in (
                ("result", {"ids": [other]}),
                ("agents", {"ids": [other]}),
                ("cancel", {"ids": [other]}),
                ("send", {"id": other, "text": "hello"}),
                ("fork", {"id": other, "task": "tell me"}),
                ("answer", {"id": other, "text": "yes"}),
            ):
                result = client.tool(tool, **arguments)
                assert result["isError"] and "not found" in result["content"][0]["text"], tool
            uris = [r["uri"] for r in client.ask("resources/list")["resources"]]
            assert uris == [f"retinue://runs/{own}/transcript"]
            uri = f"retinue://runs/{other}/transcript"
            assert client.error("resources/read", {"uri": uri})["code"] == -32002
        unknown = one.tool("result", ids=[RUN])["content"][0]["text"]
        assert unknown.replace(RUN, yours) == one.tool("result", ids=[yours])["content"][0]["text"]


def test_a_task_of_another_guest_does_not_exist(tmp_path: Path) -> None:
    meta = envelope({"extensions": {TASKS: {}}})
    flags = [("--guest", "one"), ("--guest", "two")]
    with (
        private_home(tmp_path) as home,
        RawClient(home, *flags[0]) as one,
        RawClient(home, *flags[1]) as two,
    ):
        task = one.tool("delegate", meta, tasks=["say it"])["taskId"]
        assert one.ask("tasks/get", {"taskId": task, "_meta": meta})["taskId"] == task
        for method in ("tasks/get", "tasks/cancel"):
            refused = two.error(method, {"taskId": task, "_meta": meta})
            assert refused["code"] == -32602
        guessed = {"taskId": task.rpartition(".")[0] + "." + "0" * 32, "_meta": meta}
        assert one.error("tasks/get", guessed)["code"] == -32602


def test_a_task_id_is_valid_with_its_key_only() -> None:
    id = task_id((RUN, RUN), b"key")
    assert runs_of(id, b"key") == (RUN, RUN)
    assert runs_of(id, b"other") == ()
    assert runs_of("x" + id[1:], b"key") == ()
    assert len(task_id((RUN,) * 4, b"key")) <= 128 and task_id((RUN,), b"key").startswith(RUN)
    for odd in ("", ".", RUN, f"{RUN}.", f"x.{id[-32:]}", f"{RUN}.ä"):
        assert runs_of(odd, b"key") == ()


def test_open_agents_count_with_all_that_they_may_spend() -> None:
    guest = Guest(usd=1.0, tokens=1_000, most_open=4)
    ended = RunCharge(False, 0.25, 100)
    running = RunCharge(True, 0.1, 50, 0.25, 400)
    assert shares(guest, [], 2, None, None) == (0.5, 500)
    assert shares(guest, [ended, running], 1, None, None) == (0.5, 500)
    assert shares(guest, [ended, running], 1, 0.1, 50) == (0.1, 50)
    assert shares(guest, [ended, running], 1, 5.0, 5_000) == (0.5, 500)
    assert shares(Guest(), [ended], 1, None, 7) == (None, 7)
    with pytest.raises(ToolProblem, match="used up"):
        shares(guest, [RunCharge(False, 1.0, 0)], 1, None, None)
    with pytest.raises(ToolProblem, match="1 agents are open and you may have 4"):
        shares(guest, [running], 4, None, None)


def test_a_guest_has_a_budget_and_a_number_of_agents(tmp_path: Path) -> None:
    gate = Gate("Done.")
    flags = ("--max-tokens", "60000", "--max-agents", "2")
    with private_home(tmp_path, gate) as home, RawClient(home, *flags) as client:
        client.initialize("2025-06-18")
        first = first_id(client.tool("delegate", tasks=["one"], background=True))
        tool = client.tool("delegate", tasks=["two"], background=True)
        assert tool["isError"] and "held by open agents" in tool["content"][0]["text"]
        gate.opened.set()
        client.tool("result", ids=[first])
        assert not client.tool("delegate", tasks=["two"])["isError"]
        many = client.tool("delegate", tasks=["a", "b", "c"])
        assert "you may have 2" in many["content"][0]["text"]


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_so_many_agents_of_a_guest_work_at_a_time_and_others_wait(
    tmp_path: Path, transport: str
) -> None:
    gate = Gate("Done.")
    with private_home(tmp_path, gate) as home, contextlib.ExitStack() as stack:
        if transport == "stdio":
            one = stack.enter_context(RawClient(home, "--max-working", "1", "--guest", "one"))
            two = stack.enter_context(RawClient(home, "--max-working", "1", "--guest", "two"))
            call_one, call_two = (partial(c.tool, meta=envelope()) for c in (one, two))
        else:
            url = stack.enter_context(served(home, "--mcp-max-working", "1"))
            call_one, call_two = (HttpGuest(url, token).tool for token in (ALICE, CAROL))
        first = call_one("delegate", tasks=["a", "b"], background=True)
        ids = [agent["id"] for agent in first["structuredContent"]["agents"]]
        assert gate.reached.wait(60)
        # Its own lane is full, and that of another guest is not.
        yours = first_id(call_two("delegate", tasks=["c"], background=True))
        home.until(lambda: len(gate.heard) == 2)
        agents = call_one("agents", ids=ids)["structuredContent"]["agents"]
        assert sorted(agent["state"] for agent in agents) == ["queued", "running"]
        again = first_id(call_one("fork", id=ids[0], task="otherwise", background=True))
        assert _agent(call_one("agents", ids=[again]))["state"] == "queued"
        assert len(gate.heard) == 2
        gate.opened.set()
        ids_ended = [*ids, again]
        home.until(
            lambda: all(
                agent["state"] == "completed"
                for agent in call_one("result", ids=ids_ended)["structuredContent"]["agents"]
            )
        )
        assert _agent(call_two("result", ids=[yours]))["state"] == "completed"


def test_only_a_person_allows_what_an_agent_asks_for(tmp_path: Path) -> None:
    def writer(request: Any) -> Any:
        results = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
        return results[-1].text if results else call("write", path="made.txt", content="hello")

    with private_home(tmp_path, writer) as home:
        with RawClient(home) as client:
            client.initialize("2025-06-18")
            id = first_id(client.tool("delegate", tasks=["write"], background=True))
            home.until(lambda: "questions" in _agent(client.tool("agents", ids=[id])))
            refused = client.tool("answer", id=id, allow=True)
            assert refused["isError"] and "Only a person" in refused["content"][0]["text"]
            assert not client.tool("answer", id=id, allow=False)["isError"]
            assert _agent(client.tool("result", ids=[id]))["state"] == "completed"
            assert not (home.project / "made.txt").exists()
        with RawClient(home, "--client-may-approve") as client:
            client.initialize("2025-06-18")
            id = first_id(client.tool("delegate", tasks=["write"], background=True))
            home.until(lambda: "questions" in _agent(client.tool("agents", ids=[id])))
            assert not client.tool("answer", id=id, allow=True)["isError"]
            client.tool("result", ids=[id])
            assert (home.project / "made.txt").read_text() == "hello"


def _agent(result: dict[str, Any]) -> dict[str, Any]:
    return result["structuredContent"]["agents"][0]


def test_agents_work_in_the_directories_of_their_guest(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "part").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path)
    guest = Guest(roots=(str(root),))
    assert work_directory(guest, "") == str(root)
    assert work_directory(guest, "part") == str(root / "part")
    for wrong in ("..", "link", "/", str(tmp_path)):
        with pytest.raises(ToolProblem, match="outside of where agents may work"):
            work_directory(guest, wrong)
    with pytest.raises(ToolProblem, match="is not a directory"):
        work_directory(guest, "nowhere")
    terms = terms_of(guest, str(root / "part"), None)
    assert terms.read == (str(root), str(root / "part"))
    assert terms_of(Guest(), "", None).read == ()
    limited = Guest(tools=("read", "grep"))
    assert terms_of(limited, "", None).tools == ("read", "grep")
    assert terms_of(limited, "", ("read",)).tools == ("read",)
    with pytest.raises(ToolProblem, match="bash cannot be used here"):
        terms_of(limited, "", ("bash",))


def test_a_link_in_the_place_of_a_directory_that_was_checked_is_refused(tmp_path: Path) -> None:
    """The server knows the directory since it began; what stands there since then is a link."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root, outside):
        folder.mkdir()
        (folder / "page.txt").write_text(f"of {folder.name}")

    def reader(request: Any) -> Any:
        results = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
        return results[-1].text if results else call("read", path="page.txt")

    with private_home(tmp_path, reader) as home, RawClient(home, "--root", str(root)) as client:
        client.initialize("2025-06-18")
        assert "of root" in _agent(client.tool("delegate", tasks=["read"]))["text"]
        root.rename(tmp_path / "aside")
        root.symlink_to(outside)
        refused = client.tool("delegate", tasks=["read"])
        assert refused["isError"] and "symbolic link" in refused["content"][0]["text"]
        assert len(client.tool("agents")["structuredContent"]["agents"]) == 1


def test_a_client_lowers_the_budget_of_an_agent_file_and_never_raises_it(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        folder = home.folder / "config" / "retinue" / "agents"
        folder.mkdir(parents=True)
        (folder / "thrifty.md").write_text(
            "---\nname: thrifty\ndescription: Says it.\nbudget: {max_tokens: 60000}\n---\nSay it.\n"
        )

        def limit(client: RawClient, **wish: Any) -> int:
            id = first_id(client.tool("delegate", tasks=["say it"], agent="thrifty", **wish))
            value = json.loads(home.run("budget", id, "--json").stdout)
            return int(value["limit"]["tokens"])

        with RawClient(home) as client:
            client.initialize("2025-06-18")
            assert limit(client) == limit(client, max_tokens=900_000) == 60_000
            assert limit(client, max_tokens=50_000) == 50_000
            run = first_id(client.tool("agents"))
            again = first_id(client.tool("send", id=run, text="And again."))
            assert again != run
        with RawClient(home, "--max-tokens", "900000") as client:
            client.initialize("2025-06-18", name="rich")
            assert limit(client) == 60_000


def test_a_client_without_a_usable_name_is_a_guest_all_the_same() -> None:
    assert guest_name("Claude Code/2") == "Claude-Code-2"
    assert guest_name("💥") == "client"


@pytest.mark.parametrize(
    ("families", "has"), [("", "delegate_tasks"), ("fanout", "spawn_agents"), ("none", "")]
)
def test_agents_start_others_with_the_families_of_their_guest(
    tmp_path: Path, families: str, has: str
) -> None:
    requests: list[set[str]] = []

    def model(request: Any) -> str:
        requests.append({tool.name for tool in request.tools})
        return "Done."

    flags = ("--families", families) if families else ()
    with private_home(tmp_path, model) as home, RawClient(home, *flags) as client:
        client.initialize("2025-06-18")
        assert not client.tool("delegate", tasks=["say it"])["isError"]
    (tools,) = requests
    assert tools & {"delegate_tasks", "spawn_agents"} == ({has} if has else set())
