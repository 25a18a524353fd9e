"""Generated schedules of swaps: while a tool works, between any two lines of ours, somebody puts a
link, a FIFO, a hard link, another directory or another file system in the place of what it is about
to use. Each schedule is checked against a directory outside that has the same names: nothing of it
may be told, and nothing of it may change.

`python -m tests.security.swaps FOLDER N SEED [by-name]` prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import random
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import retinue
from retinue.agent_files.skill_tool import SkillTool
from retinue.agent_files.skills import FILE, Skill
from retinue.core.redaction import Redactor
from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import Queued, Run
from retinue.core.values import Permissions
from retinue.errors import RetinueError
from retinue.sandbox import worktree, worktree_files
from retinue.sandbox.bounded_read import read_beneath
from retinue.sandbox.open_directories import OpenDirectory
from retinue.tools.base import Context
from retinue.tools.builtin import ripgrep
from retinue.tools.builtin.edit import EditTool
from retinue.tools.builtin.git import GitTool
from retinue.tools.builtin.list_find_tools import FindTool, ListFilesTool
from retinue.tools.builtin.read_tool import ReadTool
from retinue.tools.builtin.run_processes import Processes
from retinue.tools.builtin.search import SearchTool
from retinue.tools.builtin.shell import ShellTool
from retinue.tools.builtin.symbols import SymbolsTool
from retinue.tools.builtin.text_file import sha256
from retinue.tools.builtin.write_leases import WriteLeases
from retinue.tools.builtin.write_tool import WriteTool
from retinue.tools.families.base import CallComplaint
from retinue.tools.families.fanout.task_files import contents
from retinue.tools.mcp_client.protocol import McpError, ServerLimits
from retinue.tools.mcp_client.transports.stdio import StdioTransport

OURS = tuple(
    f"{Path(retinue.__file__).parent}/{part}/"
    for part in ("sandbox", "tools", "agent_files", "syntax")
)
CANARY = "canary-that-nobody-may-see"
NAMES = ("a.txt", "deep/b.txt", "deep/more/c.txt", FILE)
ONLY = "only-outside.txt"
TARGETS = (
    "sub",
    "sub/deep",
    "sub/deep/more",
    "sub/a.txt",
    "sub/deep/b.txt",
    "sub/deep/more/c.txt",
    "sub/new",
    "added",
)
KINDS = ("absolute", "relative", "chain", "magic", "fifo", "moved", "hard", "mount", "back")
SLOW = ("shell", "git")
MNT_DETACH = 2


@dataclass
class World:
    """`base/ws` was given to the tree, and `base/added` beside it; the run works in
    `base/ws/sub`."""

    base: Path
    may_mount: bool = False

    def __post_init__(self) -> None:
        self.base = Path(os.path.realpath(self.base))
        self.ws, self.sub, self.outside = (
            self.base / "ws",
            self.base / "ws" / "sub",
            self.base / "outside",
        )
        for name in (*NAMES, ONLY, "deep/.git/config", "x.txt"):
            path = self.outside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{CANARY}\ninside\n")
        self.before = self._look()

    def build(self) -> None:
        if self.may_mount:
            with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
                for path in reversed(
                    [line.split()[1] for line in mounts]
                ):  # where it is now: it may have been moved
                    if path.startswith(f"{self.base}/"):
                        _libc().umount2(os.fsencode(path), MNT_DETACH)
        for folder in (self.ws, self.base / "added"):
            _remove(folder)
        for name in NAMES:
            file = self.sub / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{'x' * len(CANARY)}\ninside\n")
        (self.sub / "deep/.git").mkdir()
        (self.base / "added").mkdir()
        (self.base / "added/x.txt").write_text("inside\n")

    def path(self, target: str) -> Path:
        return self.base / "added" if target == "added" else self.ws / target

    def swap(self, target: str, kind: str) -> None:
        """What cannot be done now (it has been swapped before, it is not there) is left; so is what
        lies behind a swap that was made before: the attacker has no more power outside than we
        have."""
        path = self.path(target)
        with contextlib.suppress(OSError):
            if os.path.realpath(path.parent) == str(path.parent):
                self._swap(path, kind, self.outside / target.removeprefix("sub").removeprefix("/"))

    def _swap(self, path: Path, kind: str, twin: Path) -> None:
        aside = path.with_name(f"{path.name}.aside")
        if kind == "back":
            _remove(path)
            os.rename(aside, path)
            return
        if kind == "mount":
            self._mount(path)
            return
        if kind == "hard" and (path.is_dir() or not path.exists()):
            return
        if os.path.lexists(path):
            os.rename(path, aside)
        match kind:
            case "absolute":
                os.symlink(twin, path)
            case "relative":
                os.symlink(os.path.relpath(twin, path.parent), path)
            case "chain":
                hop = self.ws / "hop"
                hop.unlink(missing_ok=True)
                os.symlink(twin, hop)
                os.symlink(os.path.relpath(hop, path.parent), path)
            case "magic":
                os.symlink(f"/proc/self/root{twin}", path)
            case "fifo":
                os.mkfifo(path)
            case "moved":
                path.mkdir() if aside.is_dir() else path.write_text("another\n")
            case "hard":
                os.link(twin, path)

    def _mount(self, path: Path) -> None:
        if not self.may_mount or path.is_symlink() or not path.is_dir():
            return
        if _libc().mount(b"none", os.fsencode(path), b"tmpfs", 0, b"size=64k") == 0:
            (path / "a.txt").write_text("another file system\n")

    def harm(self) -> str:
        now = self._look()
        return (
            ""
            if now == self.before
            else f"outside is {sorted(set(now.items()) ^ set(self.before.items()))}"
        )

    def _look(self) -> dict[str, tuple[int, int, bytes]]:
        result = {}
        for top, folders, files in os.walk(self.outside):
            for name in (*folders, *files):
                path = os.path.join(top, name)
                status = os.lstat(path)
                data = Path(path).read_bytes() if stat.S_ISREG(status.st_mode) else b""
                result[os.path.relpath(path, self.outside)] = (
                    stat.S_IMODE(status.st_mode),
                    status.st_mtime_ns,
                    data,
                )
        return result


class Swapper:
    """Counts the lines of ours that are run, and does what is due at each."""

    def __init__(self, world: World, plan: list[tuple[int, str, str]]) -> None:
        self.world, self.n, self._plan = world, 0, sorted(plan)

    def _due(self) -> None:
        while self._plan and self._plan[0][0] <= self.n:
            _, target, kind = self._plan.pop(0)
            self.world.swap(target, kind)
        self.n += 1

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            return self._trace if frame.f_code.co_filename.startswith(OURS) else None
        if event == "line":
            self._due()
        return self._trace

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self._due()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(None)


def caller(world: World, holding: OpenDirectory, n: int) -> Context:
    both = (str(world.sub), str(world.base / "added"))
    spec = RunSpec(
        id=f"r{n}", request=RunRequest(agent="a", task="t", cwd=str(world.sub)), root=f"r{n}"
    )
    permissions = Permissions(read=both, write=both)
    run = Run(id=spec.id, state=Queued())
    where: dict[str, Any] = {"root": str(world.sub), "permissions": permissions, "holding": holding}
    return Context(spec=spec, row=run, call_id="c", index=0, key=f"k{n}", called_at=1, **where)


def steps(world: World, processes: Processes) -> dict[str, Callable[[Context], Any]]:
    """Everything that goes to a path, by name. Each answers what it would tell."""
    sub, added = str(world.sub), str(world.base / "added")
    was = sha256((world.sub / "a.txt").read_bytes())
    patch = (
        "*** Begin Patch\n*** Update File: a.txt\n@@\n-inside\n+patched\n*** Update File: "
        "deep/b.txt\n@@\n-inside\n"
        "+patched\n*** Add File: new/n.txt\n+new\n*** End Patch"
    )
    tools = {
        t.name: t
        for t in (
            *(ReadTool(), ListFilesTool(), FindTool(), SearchTool(), SymbolsTool()),
            *(EditTool(), WriteTool()),
        )
    }

    def call(name: str, **args: Any) -> Callable[[Context], Any]:
        return lambda who: tools[name].run(who, args)

    def first(who: Context) -> str:
        return contents(who, sub, ("a.txt", "deep/b.txt"), 1000, "t", "k")

    def lease(who: Context) -> str:
        writers = WriteLeases()
        try:
            text = writers.take(who)
            opened = [
                os.readlink(f"/proc/self/fd/{fd}")
                for one in writers._leases.values()
                for fd in one.directories
            ]
            return text + _all_inside(world, opened)
        finally:
            writers.close()

    def mounts(who: Context) -> str:
        with processes.command(who, ("true",), "deep", may_write=True) as command:
            return _all_inside(
                world, [os.readlink(f"/proc/self/fd/{fd}") for fd in command.opened.values()]
            )

    def server(_: Context) -> str:
        where = {"cwd": f"{sub}/deep", "within": str(world.ws)}
        wire = StdioTransport(
            "./a.txt", (), env={}, limits=ServerLimits(), redactor=Redactor(), **where
        )
        with wire._directory() as where:
            return _all_inside(world, [os.path.realpath(where)])

    def copy(_: Context) -> str:
        return worktree._enter(world.sub, "deep/more/made/here")

    def plain(_: Context) -> str:
        worktree_files.make_plain(world.sub)
        return ""

    def library(_: Context) -> str:
        return read_beneath(world.sub / "deep" / "b.txt", world.sub).decode()

    skills = SkillTool([Skill(name="s", description="d", path=sub)])
    return {
        "skill": lambda who: skills.run(who, {"name": "s", "file": "deep/b.txt"}),
        "skill body": lambda who: skills.run(who, {"name": "s"}),
        "read": call("read", path="a.txt"),
        "read deep": call("read", path="deep/more/c.txt"),
        "read added": call("read", path=f"{added}/x.txt"),
        "list": call("list", depth=4),
        "list deep": call("list", path="deep", depth=2),
        "list added": call("list", path=added),
        "find": call("find", pattern="*.txt"),
        "search": call("search", pattern="canary|inside"),
        "search count": call("search", pattern="c|i", mode="count"),
        "search files": call("search", pattern="canary", mode="files", path="deep"),
        "search file": call("search", pattern="canary|inside", path="deep/b.txt"),
        "search scanner": call("search", pattern="(?=canary|inside)"),
        "symbols": call("symbols", text="canary"),
        "symbols deep": call("symbols", text="inside", path="deep"),
        "edit": call("edit", path="a.txt", old="inside", new="changed"),
        "edit deep": call("edit", path="deep/b.txt", old="inside", new="changed"),
        "edit wrong": call("edit", path="deep/b.txt", old="canary-that-anybody", new="x"),
        "patch": call("edit", patch=patch),
        "write new": call("write", path="new/dir/n.txt", content="new\n"),
        "write beside": call("write", path="deep/more/n.txt", content="new\n"),
        "write over": call("write", path="a.txt", content="new\n", expected_sha256=was),
        "write added": call("write", path=f"{added}/n.txt", content="new\n"),
        "read_first": first,
        "lease": lease,
        "mounts": mounts,
        "mcp": server,
        "copy": copy,
        "copy plain": plain,
        "library": library,
        "shell": lambda who: ShellTool(processes).run(
            who, {"command": "cat a.txt deep/b.txt; ls -R; echo x > deep/y"}
        ),
        "git": lambda who: GitTool(processes).run(who, {"args": ["status"]}),
    }


def _all_inside(world: World, paths: list[str]) -> str:
    return "".join(
        f"{CANARY}: {p} "
        for p in paths
        if not f"{p}/".startswith((f"{world.ws}/", f"{world.base}/added"))
    )


async def _answer(step: Callable[[Context], Any], who: Context) -> str:
    try:
        text = step(who)
        text = await text if asyncio.iscoroutine(text) else text
    except (RetinueError, CallComplaint, McpError, OSError) as error:
        return str(error)
    return str(getattr(text, "text", text))


def generate(
    chance: random.Random, world: World, name: str, n_lines: int
) -> list[tuple[int, str, str]]:
    """One to four swaps. A hard link to a file outside is that file, and whoever can make one has
    it already: it is put before tools that write and show nothing, which must leave the file
    alone."""
    reads = not name.startswith(("write", "copy"))
    kinds = [
        k for k in KINDS if not ((k == "hard" and reads) or (k == "mount" and not world.may_mount))
    ]
    most = 0 if name in SLOW else n_lines + 5
    plan: list[tuple[int, str, str]] = []
    for _ in range(chance.randint(1, 4)):
        target = TARGETS[0] if chance.random() < 0.3 else chance.choice(TARGETS)
        at = chance.randint(
            0, min(most, 60) if chance.random() < 0.4 else most
        )  # directories are opened early
        if plan and chance.random() < 0.4:
            plan.append((at, plan[-1][1], "back"))
        else:
            plan.append((at, target, chance.choice(kinds)))
    return sorted(plan)


class ByName(OpenDirectory):
    """What it would be without a holding: the name is looked up again. The schedules must find this
    out."""

    def _open(self, path: str) -> int:
        return os.open(path, os.O_PATH | os.O_DIRECTORY)


async def play(
    base: Path, n: int, seed: int, opens: type[OpenDirectory] = OpenDirectory
) -> dict[str, Any]:
    assert all(map(os.path.isdir, OURS)), "a folder whose lines are to be interrupted has moved"
    world = World(base, may_mount=_may_mount())
    world.build()
    processes = Processes(base / "state")
    every = steps(world, processes)
    chance = random.Random(seed)
    lengths: dict[str, int] = {}
    texts: dict[str, int] = dict.fromkeys(KINDS, 0)
    escapes: list[str] = []
    quick = [name for name in every if name not in SLOW]
    for i in range(-len(quick), n):  # first each once, undisturbed, to see how many lines it takes
        name = quick[i] if i < 0 else chance.choice(SLOW if i % 100 == 99 else quick)
        plan = [] if i < 0 else generate(chance, world, name, lengths.get(name, 0))
        world.build()
        with opens((str(world.ws), str(world.base / "added"))) as holding:
            if chance.random() < 0.5:
                os.close(holding.open(str(world.sub)))
            swapper = Swapper(world, plan)
            with swapper.watching():
                text = await _answer(every[name], caller(world, holding, i))
        if i < 0:
            lengths[name] = swapper.n
        harm = world.harm()
        if CANARY in text or ONLY in text or harm:
            escapes.append(f"schedule {i} of seed {seed}: {name} {plan}: {text[:300]} {harm}")
        for _, _, kind in plan:
            texts[kind] += 1
    world.build()
    await processes.close()
    facts = {
        "schedules": n,
        "seed": seed,
        "uid": os.getuid(),
        "tools": sorted(every),
        "swaps": texts,
    }
    return {**facts, "n_escapes": len(escapes), "escapes": escapes[:5]}


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _may_mount() -> bool:
    """In a mount namespace of our own, so that nobody else sees it: `unshare -m` has made it."""
    return os.getuid() == 0 and os.environ.get("RETINUE_SWAP_MOUNTS") == "1"


def _inline(monkey: Any = asyncio) -> None:
    """Threads would not be traced; nothing else runs here meanwhile."""

    async def at_once(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    monkey.to_thread = at_once


if __name__ == "__main__":
    _inline()
    ripgrep.SECONDS = 5.0
    where, many, start = sys.argv[1:4]
    how = sys.argv[4:]
    result = asyncio.run(play(Path(where), int(many), int(start), ByName if how else OpenDirectory))
    sys.stdout.write(json.dumps(result) + "\n")
