"""A machine of its own for runs that attack what belongs to the runtime: a home, a project, a
hostile model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from retinue.testing import call
from tests.cli.private_home import MODEL, Llm

CANARY = "canary-4711"
NOBODY = 65534
USERS = ["this user", "an ordinary user"]
# Everything that a command can think of; each line of output that starts with LEAK is a way in.
SHELL = r"""
c=canary; c=$c-4711
for top in "$PWD" "$THERE"; do
  grep -rlsa "$c" "$top" 2>/dev/null | sed 's/^/LEAK read /'
  for at in $(find "$top" -type s 2>/dev/null); do
    /usr/bin/python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b"{\"hello\":1}\n")
print("LEAK socket", s.recv(999))' "$at" 2>/dev/null
  done
  for at in $(find "$top" \( -name '*.plans' -o -name '*.tools' -o -name '*.artifacts' \
      -o -name '.ssh' -o -name '.local' -o -name '.config' -o -name 'autostart' -o -name bin \
      -o -path '*share/retinue*' \) 2>/dev/null); do
    [ -d "$at" ] && touch "$at/evil" 2>/dev/null && echo "LEAK write $at"
    mv "$at" "$at.moved" 2>/dev/null && echo "LEAK move $at"
    rm -rf "$at" 2>/dev/null; [ -e "$at" ] || echo "LEAK remove $at"
  done
  for at in "$top"/retinue.db* "$top"/.bashrc "$top"/.profile "$top"/.netrc \
      "$top"/.git-credentials; do
    [ -e "$at" ] || continue
    echo evil >> "$at" && [ ! -c "$at" ] && echo "LEAK append $at"
    mv "$at" "$at.moved" && echo "LEAK move $at"; rm -f "$at" && echo "LEAK remove $at"
    ln "$at" "$top/linked" && [ ! -c "$top/linked" ] && echo "LEAK link $at"
  done 2>/dev/null
done 2>/dev/null
for top in "$PWD" "$THERE"; do
  echo evil > "$top/retinue.db-journal"; mkdir "$top/.mcp.json"; echo evil > "$top/.zshrc"
done 2>/dev/null
ls /proc | grep -c '^[0-9]' | sed 's/^/processes /'
echo the attack has ended
"""


class Machine:
    """Runs a program as this user or, for root, as somebody else. `home` has secrets and default
    XDG folders."""

    def __init__(self, folder: Path, user: str) -> None:
        self.folder, self.user = folder, user
        self.home, self.project = folder / "home", folder / "home" / "work" / "project"
        self.project.mkdir(parents=True)
        for name in (
            ".ssh/id",
            ".netrc",
            ".git-credentials",
            ".config/gh/hosts.yml",
            ".local/share/keyrings/k",
        ):
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(f"{CANARY}\n")
        (self.home / ".bashrc").write_text("# mine\n")
        (self.home / ".local/bin").mkdir()
        (self.home / ".config/autostart").mkdir()
        (self.project / "notes.txt").write_text("notes\n")
        self.env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "RETINUE_IDLE_SECONDS": "0.3",
            "RETINUE_PROBE": "0",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.prefix, self.python = (), sys.executable
        if user == "an ordinary user":
            self.prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
            self.python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"

    def own(self) -> None:
        if self.prefix:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(self.folder)], check=True)

    def run(self, *argv: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
        self.own()
        return subprocess.run(
            [*self.prefix, self.python, *argv],
            cwd=cwd,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=50,
            stdin=subprocess.DEVNULL,
        )


@contextmanager
def machine(user: str) -> Iterator[Machine]:
    if user == "an ordinary user":
        if os.getuid() != 0:
            pytest.skip(
                "only root can be somebody else; whoever runs this is an ordinary user already"
            )
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is missing")
    folder = Path(tempfile.mkdtemp(prefix="own-state-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        machine = Machine(folder, user)
        if (
            user == "an ordinary user"
            and machine.run("-c", "import retinue.api, apsw, msgspec", cwd=folder).returncode
        ):
            pytest.skip("no Python here that an ordinary user may run has what is needed")
        yield machine
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def hostile(*calls: Any) -> Callable[[Any], Any]:
    """A model that makes these calls, one a turn, and then repeats everything that it was shown."""

    def script(request: Any) -> Any:
        messages = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
        return (
            calls[len(messages)]
            if len(messages) < len(calls)
            else "\n=====\n".join(m.text for m in messages) or "Done."
        )

    return script


def file_calls(paths: list[str]) -> list[Any]:
    """Every file tool on every path, and from above."""
    results = []
    for path in paths:
        results += [
            call("read", path=path),
            call("list", path=path, depth=4),
            call("find", pattern="*", path=path),
        ]
        results += [
            call("search", pattern=".", path=path),
            call("write", path=path, content="evil"),
        ]
        results += [
            call("edit", path=path, old="x", new="evil"),
            call("write", path=f"{path}/evil", content="evil"),
        ]
    return results


@contextmanager
def provider(script: Any) -> Iterator[dict[str, str]]:
    with Llm(script) as llm:
        yield {**llm.env, "RETINUE_MODEL": MODEL}


def listing(top: Path) -> dict[str, str]:
    """Every file of a tree with its content, for comparing."""
    result = {}
    for path in sorted(top.rglob("*")):
        if path.is_file() and not path.is_symlink():
            result[str(path.relative_to(top))] = path.read_bytes()[:4096].hex()
    return result


def said(process: subprocess.CompletedProcess[str]) -> str:
    assert process.returncode == 0, (process.stdout[-2000:], process.stderr[-2000:])
    return process.stdout


LIBRARY = """
import asyncio, json, sys
from retinue import Agent, Permissions, Retinue
from retinue.testing import Scripted, call

calls = [call(name, **args) for name, args in json.load(open(sys.argv[1]))]

def script(request):
    shown = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
    if len(shown) < len(calls):
        return calls[len(shown)]
    return "\\n=====\\n".join(m.text for m in shown)

async def main():
    tools = ["shell", "read", "list", "find", "search", "write", "edit"]
    agent = Agent("a", model=Scripted(script), tools=tools)
    async with Retinue("retinue.db") as retinue:
        access = Permissions(mode="bypassPermissions")
        print((await retinue.run(agent, "CANARY the task", permissions=access)).text)

asyncio.run(main())
"""


def library(folder: Path, calls: list[tuple[str, dict[str, Any]]]) -> tuple[str, str]:
    """A program with its store in the current directory, and what it is to do."""
    program, todo = folder / "program.py", folder / "calls.json"
    program.write_text(LIBRARY.replace("CANARY", CANARY))
    todo.write_text(json.dumps(calls))
    return str(program), str(todo)
