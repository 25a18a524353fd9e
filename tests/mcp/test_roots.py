"""The directories that a client has open are where its agents work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from retinue.mcp.client_roots import directories, rooted
from retinue.mcp.guests import Guest
from retinue.testing import call
from tests.cli.private_home import private_home
from tests.mcp.raw_client import TASKS, RawClient, envelope


def reader(request: Any) -> Any:
    """Reads the file that its task names, and says what it got."""
    results = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
    return results[-1].text if results else call("read", path=request.messages[0].text)


def offered(*folders: Path) -> dict[str, Any]:
    return {"roots": [{"uri": folder.as_uri(), "name": folder.name} for folder in folders]}


def agent(result: dict[str, Any]) -> dict[str, Any]:
    results: dict[str, Any] = result["structuredContent"]["agents"][0]
    return results


def parts(folder: Path) -> tuple[Path, Path]:
    """Two directories beside the project, each with a file."""
    for name in ("one part", "other"):
        (folder / name).mkdir(parents=True)
        (folder / name / "page.txt").write_text(f"of {name}")
    return folder / "one part", folder / "other"


def test_a_client_is_asked_for_its_roots_once_and_again_when_they_change(tmp_path: Path) -> None:
    one, other = parts(tmp_path / "work")
    with private_home(tmp_path, reader) as home, RawClient(home) as client:
        client.initialize("2025-06-18", roots={"listChanged": True})

        def read(expected: str, roots: Path | None) -> None:
            id = client.post("tools/call", client.call_of("delegate", tasks=["page.txt"]))
            if roots is not None:
                question = client.asked.get(timeout=60)
                assert question["method"] == "roots/list"
                client.answer(question, offered(roots))
            assert expected in agent(client.reply(id)["result"])["text"]

        read("of one part", one)
        read("of one part", None)
        client.notify("notifications/roots/list_changed", {})
        read("of other", other)
        outside = client.tool("delegate", tasks=["page.txt"], directory=str(one))
        assert "outside of where agents may work" in outside["content"][0]["text"]
        assert client.asked.empty()


def test_a_client_without_state_gives_its_roots_with_the_request(tmp_path: Path) -> None:
    one, _ = parts(tmp_path / "work")
    meta = envelope({"roots": {}, "extensions": {TASKS: {}}})
    with private_home(tmp_path, reader) as home, RawClient(home) as client:
        params = client.call_of("delegate", meta, tasks=["page.txt"])
        first = client.ask("tools/call", params)
        assert first["resultType"] == "input_required"
        (key,) = first["inputRequests"]
        assert first["inputRequests"][key] == {"method": "roots/list", "params": {}}
        again = {**params, "inputResponses": {key: offered(one)}}
        task = client.ask("tools/call", again)
        assert task["resultType"] == "task"
        get = {"taskId": task["taskId"], "_meta": meta}
        ended = home.until(
            lambda: (reply := client.ask("tasks/get", get))["status"] == "completed" and reply
        )
        assert "of one part" in agent(ended["result"])["text"]
        # One who cannot say is not asked for ever.
        assert client.ask("tools/call", {**params, "inputResponses": {}})["resultType"] == "task"


def test_only_directories_of_this_machine_are_roots(tmp_path: Path) -> None:
    one, other = parts(tmp_path)
    listed = [
        {"uri": one.as_uri()},
        {"uri": one.as_uri() + "/"},
        {"uri": (other / "page.txt").as_uri()},
        {"uri": "file://elsewhere" + str(other)},
        {"uri": "https://host/path"},
        {"uri": "file:///a%00b"},
        {"uri": "file://[/x"},
        {"uri": 7},
        "text",
    ]
    assert directories({"roots": listed}) == (str(one),)
    for odd in (None, [], {}, {"roots": 7}, {"roots": None}):
        assert directories(odd) == ()


def test_roots_that_the_user_has_set_stay_the_limit(tmp_path: Path) -> None:
    top, inner, beside = (str(tmp_path / name) for name in ("a", "a/b", "ab"))
    assert rooted(Guest(), (top, beside)).roots == (top, beside)
    assert rooted(Guest(roots=(top,)), ()).roots == (top,)
    assert rooted(Guest(roots=(top,)), (inner,)).roots == (inner,)
    assert rooted(Guest(roots=(inner,)), (top, beside)).roots == (inner,)
    assert rooted(Guest(roots=(top,)), (beside,)).roots == (top,)
