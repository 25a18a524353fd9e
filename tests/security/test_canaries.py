"""Secrets in the environment, in files, in what commands, servers and providers say: none is found
in anything that the program has written, shown, or put on a command line. Through the installed
program, with a model that wants them out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from retinue.testing import call
from tests.cli.private_home import PrivateHome, private_home
from tests.needs import needs
from tests.security.canaries import ProcessList, Search, every_form, planted
from tests.tools.mcp.client_support import FAKE

SECRETS = planted(
    "OPENAI_API_KEY",
    "SERVICE_TOKEN",
    "DATABASE",
    "MCP_LITERAL",
    "MCP_VARIABLE",
    "ANTHROPIC_API_KEY",
)
ENV = {
    "OPENAI_API_KEY": SECRETS["OPENAI_API_KEY"],
    "ANTHROPIC_API_KEY": SECRETS["ANTHROPIC_API_KEY"],
    "SERVICE_TOKEN": SECRETS["SERVICE_TOKEN"],
    "DATABASE_URL": f"postgres://ada:{SECRETS['DATABASE'].replace('/', '%2F')}@db.example.org/x",
    "MCP_VARIABLE": SECRETS["MCP_VARIABLE"],
}
PIECES = """
while IFS== read -r name value; do
  for ((i = 1; i < ${#value}; i++)); do
    printf '%s' "${value:0:i}"; sleep 0.002; printf '%s\\n' "${value:i}"
  done
done < .env
"""
CUT = """
key=$(head -n1 .env | cut -d= -f2-)
for at in 32768 65536 98304; do
  for ((i = 2; i < ${#key}; i += 5)); do
    head -c $((at - i)) /dev/zero | tr '\\0' .; printf '%s' "$key"
    head -c $((at - ${#key} + i)) /dev/zero | tr '\\0' -
  done
done
"""
ENCODED = (
    "cat .env; base64 .env; base64 -w0 .env; od -An -tx1 .env | tr -d ' \\n'; grep "
    "--color=always cnry .env"
)
LAST = "printf 'A%.0s' {1..100}; head -n1 .env | cut -d= -f2- | tr -d '\\n'"


def plant(home: PrivateHome) -> None:
    values = list(SECRETS.values())
    (home.project / ".env").write_text(
        "".join(f"{name}={value}\n" for name, value in SECRETS.items())
    )
    lines = ["." * (2_000 - n) + value for n in (3, 12, 20, 30) for value in values]
    lines += [
        f"{'=' * n}{value}{'=' * 400} needle {'=' * 500}{value}"
        for n in range(80, 110, 3)
        for value in values
    ]
    (home.project / "long.txt").write_text("\n".join(lines) + "\n")
    (home.project / "wide.txt").write_text(
        "".join(f"{'z' * (195 - n)}{v} near\n" for n in (5, 15, 25) for v in values)
    )
    (home.project / "utf16.txt").write_bytes("\n".join(values).encode("utf-16"))
    (home.project / "forms.txt").write_text(every_form(values).replace("\0", ""))
    (home.project / "AGENTS.md").write_text(f"{'a' * 32_740} {values[1]}\n{values[0]}\n")
    server = {
        "command": sys.executable,
        "args": ["-I", "-S", str(FAKE)],
        "env": {"TOKEN": SECRETS["MCP_LITERAL"], "OTHER_TOKEN": "${MCP_VARIABLE}"},
    }
    (home.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"fake": server}}))
    subprocess.run(["rm", "-rf", ".git"], cwd=home.project, check=True)
    as_one = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (
        ["init", "-q"],
        ["add", ".env", "long.txt", "wide.txt", "AGENTS.md"],
        [*as_one, "commit", "-qF", ".env"],
    ):
        subprocess.run(
            ["git", *words],
            cwd=home.project,
            check=True,
            env={"PATH": os.environ["PATH"], "HOME": "/none"},
        )


class Thief:
    """A model of a provider that knows the keys, and uses every tool to have them written down."""

    def __init__(self) -> None:
        self.results: list[str] = []
        self.heard: list[bytes] = []

    def __call__(self, request: Any) -> Any:
        self.heard.append(request.raw)
        self.results = [m.text for m in request.messages if type(m).__name__ == "ToolMessage"]
        turns = self.turns()
        return (
            turns[request.turn]
            if request.turn < len(turns)
            else f"Done: {every_form(SECRETS.values())}"
        )

    def turns(self) -> list[Any]:
        stolen = every_form([SECRETS["OPENAI_API_KEY"]])
        return [
            [
                call("read", path=name)
                for name in (".env", "long.txt", "utf16.txt", "forms.txt", "wide.txt")
            ],
            [
                *(call("read", path="long.txt", offset=n, limit=3) for n in range(1, 30, 4)),
                call("search", pattern="needle|cnry"),
                call("search", pattern="near", context=1),
                call("edit", path="wide.txt", old=f"{'z' * 180} nearly", new="x"),
                call("edit", patch="--- a/wide.txt\n+++ b/wide.txt\n@@ -1,2 +1,2 @@\n-zz\n+yy\n"),
            ],
            [call("shell", command=command) for command in (PIECES, CUT, ENCODED)],
            call("shell", command=f"{LAST}; sleep 600", background=True),
            [call("shell_output", id=self.id(), offset=n) for n in range(90, 140)],
            [
                call("git", args=words)
                for words in (["log", "-p"], ["show", "HEAD:.env"], ["blame", "-s", ".env"])
            ],
            [call("mcp__fake__env"), call("mcp__fake__echo", text=stolen), call("mcp__fake__die")],
            [
                call("shell", command=f"echo '{SECRETS['OPENAI_API_KEY']}' > copy.txt; sleep 0.3"),
                call("tasks", action="add", titles=[stolen[:300]]),
                call("think", thought=stolen),
                call("write", path="new.txt", content=stolen),
                call("read", path=stolen[:200]),
            ],
        ]

    def id(self) -> str:
        return next(
            (r.split("id '")[1].split("'")[0] for r in self.results if "background; id '" in r),
            "none",
        )


class Echoing(BaseHTTPRequestHandler):
    """A provider that repeats the key in its errors, so that each cut falls into it somewhere."""

    n = 0

    def do_POST(self) -> None:
        type(self).n += 1
        self.rfile.read(int(self.headers["content-length"] or 0))
        key = self.headers["authorization"].removeprefix("Bearer ")
        words = ". ".join(f"{'w' * (n * 7 % 97)} {key}" for n in range(self.n, self.n + 40))
        body = json.dumps({"error": {"message": words, "type": key, "code": key}}).encode()
        self.send_response((400, 500, 404)[self.n % 3])
        self.send_header("content-length", str(len(body)))
        self.send_header("x-request-id", key)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        return


@contextmanager
def echoing() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echoing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def shown_by_commands(home: PrivateHome) -> Iterator[tuple[str, str]]:
    """Everything that can be asked for about all runs."""
    for words in (
        ("ps", "--all", "--tree", "--json"),
        ("ps", "--all"),
        ("config",),
        ("mcp", "list"),
        ("deliveries",),
    ):
        result = home.run(*words)
        yield " ".join(words), result.stdout + result.stderr
    for run in home.runs():
        id = run["id"]
        commands = [("show", id), ("show", id, "--json"), ("logs", id), ("logs", "--jsonl", id)]
        commands += [
            ("export", id, "-f", name)
            for name in ("md", "jsonl", "stream-json", "perfetto", "otlp", "html")
        ]
        for words in commands:
            result = home.run(*words)
            yield " ".join(words), result.stdout + result.stderr


@needs("bwrap")
@pytest.mark.timeout(240)
def test_no_secret_is_written_shown_or_on_a_command_line(tmp_path: Path) -> None:
    search, thief = Search(SECRETS), Thief()
    with private_home(tmp_path, thief, chunks=60) as home, ProcessList() as processes:
        home.env |= ENV
        plant(home)
        home.ok("trust", "--yes")
        flags = (
            "--yolo",
            "--output-format",
            "stream-json",
            "--include-partial-messages",
            "--max-turns",
            "30",
        )
        process = home.start("run", *flags, "Go.")
        out, err = process.communicate(timeout=150)
        search.look("run", out + err)
        assert process.returncode == 0, err[-2_000:]
        assert "[redacted:OPENAI_API_KEY]" in out and "[redacted:TOKEN]" in out
        assert len(thief.results) > 70, [r[:80] for r in thief.results]
        with echoing() as url:
            for _ in range(3):
                failed = home.real(
                    "run", "-p", "--timeout", "6s", "Go.", env={"OPENAI_BASE_URL": url}
                )
                search.look("a failed run", failed.stdout + failed.stderr)
                assert failed.returncode != 0
        for where, text in shown_by_commands(home):
            search.look(where, text)
        search.look_below(
            *(tmp_path / name for name in ("data", "state", "run", "config", "cache"))
        )
    for line in processes.seen:
        search.look("a command line", line)
    for body in thief.heard:
        search.look("a request to the provider", body)
    assert search.found == []
    assert search.n_bytes > 1_000_000, "there was something to look at"
    assert any(b"retinue.host.daemon" in line for line in processes.seen)


@needs("bwrap")
def test_a_host_that_was_killed_knows_the_keys_of_whoever_starts_it_again(tmp_path: Path) -> None:
    first, second = planted("FIRST_KEY"), planted("SECOND_KEY")
    search = Search({**first, **second})

    def script(request: Any) -> Any:
        if any(type(m).__name__ == "ToolMessage" for m in request.messages[-1:]):
            return f"It said {request.messages[-1].text}"
        return call("shell", command="cat .env") if request.turn == 0 else call("read", path=".env")

    with private_home(tmp_path, script) as home:
        home.env["RETINUE_IDLE_SECONDS"] = "60"
        (home.project / ".env").write_text(f"A={first['FIRST_KEY']}\n")
        run = home.real(
            "run", "--yolo", "--json", "Go.", env={"OPENAI_API_KEY": first["FIRST_KEY"]}
        )
        search.look("the first run", run.stdout + run.stderr)
        id = home.runs()[0]["id"]
        os.kill(home.host_pid(), signal.SIGKILL)
        (home.project / ".env").write_text(f"B={second['SECOND_KEY']}\n")
        again = home.real("resume", id, "Go on.", env={"OPENAI_API_KEY": second["SECOND_KEY"]})
        assert again.returncode == 0, again.stderr
        (home.project / ".env").write_text(f"A={first['FIRST_KEY']}\nB={second['SECOND_KEY']}\n")
        # The host that runs now is brought another key by another command.
        more = home.real("run", "--yolo", "Go.", env={"OPENAI_API_KEY": first["FIRST_KEY"]})
        assert "[redacted:OPENAI_API_KEY]" in more.stdout, more
        for result in (again, more):
            search.look("a later run", result.stdout + result.stderr)
        for where, text in shown_by_commands(home):
            search.look(where, text)
        search.look_below(
            *(tmp_path / name for name in ("data", "state", "run", "config", "cache"))
        )
    assert search.found == []


def test_a_secret_in_a_file_of_servers_is_in_no_plan_and_known_again_after_a_restart(
    tmp_path: Path,
) -> None:
    literal = planted("LITERAL")["LITERAL"]
    search = Search({"LITERAL": literal})
    records: list[str] = []

    def script(request: Any) -> Any:
        last = request.messages[-1]
        if type(last).__name__ == "ToolMessage":
            records.append(
                json.loads(last.text).get("TOKEN", "none")
                if last.text.startswith("{")
                else last.text
            )
            return "Done."
        return call("mcp__fake__env")

    with private_home(tmp_path, script) as home:
        server = {
            "command": sys.executable,
            "args": ["-I", "-S", str(FAKE)],
            "env": {"TOKEN": literal},
        }
        (home.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"fake": server}}))
        home.ok("trust", "--yes")
        home.ok("run", "--yolo", "Go.")
        os.kill(home.host_pid(), signal.SIGKILL)
        home.ok("resume", home.runs()[0]["id"], "Once more.")
        search.look_below(
            *(tmp_path / name for name in ("data", "state", "run", "config", "cache"))
        )
    assert records == ["[redacted:TOKEN]"] * 2, "the server had it, and nobody was told"
    assert search.found == []
