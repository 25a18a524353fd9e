"""`git`: reads a repository's history without changing anything. Sub-commands and options are taken
from a list, the settings are ours and not the repository's (`sandbox/git_repository.py`), and it
runs in the sandbox, where the workspace is read-only."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Annotated, Any

from msgspec import Meta

from retinue.core.values import Restart
from retinue.errors import Refused, RetinueError
from retinue.formats.fair_cut import whole_characters
from retinue.formats.safe_text import clean
from retinue.sandbox.git_copy import find_repository
from retinue.sandbox.git_repository import opened, program
from retinue.sandbox.readonly_paths import beneath
from retinue.tools.base import Context, Returned, Risk, ToolResult
from retinue.tools.builtin import git_cuts
from retinue.tools.builtin.builtin_tool import Builtin, ToolArguments
from retinue.tools.builtin.command_record import plain, trim
from retinue.tools.builtin.git_rules import guarded
from retinue.tools.builtin.run_processes import Processes

SECONDS = 60.0
HEAD, TAIL = 192 << 10, 64 << 10

# `--name=` takes a value, behind the sign or as the next word; `-x#` may have a number behind it,
# `-x*` anything.
RANGE = """
    --all --branches --tags --remotes --not --first-parent --no-merges --merges --reverse --since=
    --until= --after= --before= --author= --committer= --grep= -i --regexp-ignore-case
    --invert-grep --max-count= -n# -# --skip= --follow --date-order --topo-order
    --author-date-order --ancestry-path --cherry-pick --left-right --boundary
    --simplify-by-decoration
"""
DIFF = """
    -p --patch -s --no-patch --raw --stat --stat= --numstat --shortstat --summary --name-only
    --name-status -U# --unified= --patience --minimal --histogram --diff-algorithm= -w -b
    --ignore-all-space --ignore-space-change --ignore-blank-lines -M# -C# --find-renames=
    --find-copies --no-renames --diff-filter= -S* -G* --pickaxe-all --pickaxe-regex -R
    --function-context -W --full-index --abbrev= --no-color --relative -a --text --check --dirstat
    --compact-summary -m -c --cc -z --exit-code --no-prefix
"""
SHOW = """
    --oneline --pretty= --format= --graph --decorate= --no-decorate --abbrev-commit --date=
    --no-notes --relative-date --parents --children -L*
"""
OPTIONS = {
    "log": RANGE + DIFF + SHOW,
    "show": DIFF + SHOW,
    "diff": DIFF + "--cached --staged --merge-base",
    "status": """
        -s --short -b --branch --porcelain= --long -u* --untracked-files= --ignored= -z
        --no-renames --ahead-behind --no-ahead-behind -v
    """,
    "blame": """
        -L* -l -s -e -w -M# -C# -t --show-email --show-name --show-number -n -f --porcelain
        --line-porcelain --since= --date= --root --abbrev= --first-parent
    """,
    "shortlog": "-s -n -e -c --summary --numbered --email --group=" + RANGE,
    "ls-files": """
        -c -d -m -o -s -t -u -z -i --cached --deleted --modified --others --stage --unmerged
        --ignored --exclude-standard --full-name --error-unmatch --eol --deduplicate
    """,
    "rev-parse": """
        --verify --short= --abbrev-ref --symbolic --symbolic-full-name --show-toplevel
        --show-prefix --show-cdup --git-dir --is-inside-work-tree --is-bare-repository --branches
        --tags --remotes --all -q
    """,
    "branch": """
        -l --list -a --all -r --remotes -v -vv --verbose --show-current --contains= --no-contains=
        --merged= --no-merged= --sort= --format= --no-color --points-at= -i --ignore-case
    """,
    "tag": """
        -l --list -n# --contains= --no-contains= --merged= --no-merged= --sort= --format=
        --points-at= -i --ignore-case
    """,
}
ALWAYS = {
    "log": ("--no-ext-diff", "--no-textconv", "--no-show-signature"),
    "show": ("--no-ext-diff", "--no-textconv", "--no-show-signature"),
    "diff": ("--no-ext-diff", "--no-textconv"),
    "blame": ("--no-textconv",),
    "branch": ("--list",),
    "tag": ("--list",),
}


class GitArguments(ToolArguments, frozen=True, kw_only=True):
    args: Annotated[
        list[str],
        Meta(
            min_length=1,
            max_length=200,
            description='the words after `git`, e.g. ["log", "--oneline", "-n20"]',
        ),
    ]


class GitTool(Builtin[GitArguments]):
    """Pure: it can be repeated after a restart."""

    name = "git"
    description = (
        "Look at the git repository of the workspace. Nothing is changed. `args` are the "
        f"words after `git`; the first is one of: {', '.join(OPTIONS)} (branch and tag "
        "only list). To change the repository, use shell."
    )
    Args = GitArguments
    restart: Restart = "pure"
    risk: Risk = "read"

    def __init__(self, processes: Processes) -> None:
        super().__init__()
        self._processes = processes

    async def call(self, context: Context, args: GitArguments) -> Returned:
        output, stream, hunks = (
            HeadTail(),
            context.redactor.byte_stream(),
            git_cuts.Hunks(args.args),
        )

        def wrote(data: bytes) -> None:
            output.write(stream.feed(hunks.feed(data)))

        try:
            line = argv(args.args, lambda words: guarded(words, context))
            with self._processes.command(context, line, "", may_write=False) as command:
                repository = await asyncio.to_thread(find_repository, command.cwd)
                if not beneath(repository.top, command.read):
                    raise Refused(
                        "git",
                        f"{command.cwd} is not a git repository. A repository above it is "
                        "outside this run's directories.",
                    )
                async with opened(repository, folders=command.read, logs=True) as ours:
                    own = {
                        name: value
                        for name, value in ours.environ.items()
                        if name.startswith("GIT_")
                    }
                    read = (*command.read, ours.folder)
                    command = replace(command, env={**command.env, **own}, read=read, network=False)
                    running = await self._processes.sandbox().start(command, wrote)
                    ended = await running.wait(SECONDS)
            output.write(stream.feed(hunks.close()))
            output.write(stream.close())
        except RetinueError as error:
            return ToolResult(text=str(error), error=True)
        if ended.why:
            reason = "it timed out" if ended.why == "timeout" else f"it was stopped ({ended.why})"
            return ToolResult(text=f"git did not finish: {reason}.\n{output.shown()}", error=True)
        if ended.code:
            return ToolResult(
                text=f"git ended with exit code {ended.code}.\n{output.shown()}", error=True
            )
        return ToolResult(text=output.shown() or "(no output)")

    def summary(self, args: dict[str, Any]) -> str:
        words = args.get("args")
        line = " ".join(map(str, words)) if isinstance(words, list) else ""
        return f"git {line if len(line) <= 100 else line[:99] + '…'}"


class HeadTail:
    """The first and the last part of an output."""

    def __init__(self) -> None:
        self._head, self._tail, self._n = bytearray(), bytearray(), 0

    def write(self, data: bytes) -> None:
        self._n += len(data)
        room = HEAD - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(0, room) :][-TAIL:]
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]

    def shown(self) -> str:
        tail = bytes(self._tail[-TAIL:])
        n_cut = self._n - len(self._head) - len(tail)
        if n_cut <= 0:
            return plain(bytes(self._head) + tail)
        note = f"[truncated: {n_cut} of {self._n} bytes hidden; narrow it with -n, --stat or paths]"
        return f"{plain(whole_characters(bytes(self._head)))}\n{note}\n{plain(trim(tail))}"


def argv(words: list[str], guard: Callable[[list[str]], list[str]] = list) -> tuple[str, ...]:
    """The whole command line, or `Refused` naming the word that is not on the list. `guard` may
    change the words once they are checked."""
    name, *rest = (clean(word) for word in words)
    if name not in OPTIONS:
        raise Refused(
            "git",
            f"Invalid parameters: git {name!r} is not available. Available: {', '.join(OPTIONS)}.",
        )
    pattern = _pattern(name)
    for word in rest:
        if "\0" in word:
            raise Refused("git", "Invalid parameters: a word contains a NUL character.")
        if word == "--":
            break
        if word.startswith("-") and not pattern.fullmatch(word):
            raise Refused(
                "git",
                f"Invalid parameters: option {word!r} of git {name} is not available. "
                f"{_offer(name)}",
            )
    name, *rest = guard([name, *git_cuts.whole(name, rest)])
    always = () if "--show-current" in rest else ALWAYS.get(name, ())
    return (program(), "--no-pager", name, *always, *rest)


@cache
def _pattern(name: str) -> re.Pattern[str]:
    forms = []
    for option in OPTIONS[name].split():
        if option == "-#":
            forms.append(r"-\d+")
        elif option[-1] == "#":
            forms.append(re.escape(option[:-1]) + r"\d*%?")
        elif option[-1] == "*":
            forms.append(re.escape(option[:-1]) + ".*")
        elif option[-1] == "=":
            forms.append(re.escape(option[:-1]) + "(?:=.*)?")
        else:
            forms.append(re.escape(option))
    return re.compile("|".join(forms), re.DOTALL)


def _offer(name: str) -> str:
    return f"Available: {' '.join(OPTIONS[name].split())}"
