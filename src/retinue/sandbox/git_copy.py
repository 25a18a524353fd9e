"""A repository for git to read: a copy of its plain parts, with Retinue's settings."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from retinue.errors import RetinueError
from retinue.sandbox import folder_operations as folders
from retinue.sandbox import git_folders, git_objects, git_refs
from retinue.sandbox.git_process import base, run
from retinue.sandbox.open_beneath import open_real
from retinue.sandbox.readonly_paths import beneath, worktree_of
from retinue.sandbox.regular_file import read_small, read_text

# Of the settings of a repository all that is taken over: none of these names a program, a file or
# an address.
KEPT = re.compile(
    r"core\.(autocrlf|eol|filemode|ignorecase|precomposeunicode|safecrlf|symlinks)"
    r"|extensions\.objectformat|branch\..+\.(remote|merge)|remote\..+\.fetch",
    re.DOTALL,
)
# Ours, after those, so that they count. `gpg` would be started to show whether a signature is good.
OURS = """
[core]
 bare = false
 logAllRefUpdates = false
 fsmonitor = false
 hooksPath = /dev/null
 pager = cat
 editor = false
 askPass = false
 sshCommand = false
 quotePath = false
 commitGraph = false
[gpg]
 program = false
[gpg "ssh"]
 program = false
[gpg "x509"]
 program = false
[commit]
 gpgSign = false
[log]
 showSignature = false
[diff]
 ignoreSubmodules = all
[status]
 submoduleSummary = false
[submodule]
 recurse = false
[color]
 ui = false
[gc]
 auto = 0
[protocol]
 allow = never
[user]
 name = Retinue
 email = retinue@localhost
"""
COPIED = re.compile(r"shallow|[A-Z]+_HEAD|sharedindex\.[0-9a-f]+")
MOST_INDEX = 512 * 1024 * 1024
WORKTREE = re.compile(r'^\s*worktree\s*=\s*"?([^"\n]+?)"?\s*$', re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Repository:
    """`top` holds the files, `own` is the git directory of this worktree, `common` that of the
    whole repository."""

    top: str
    own: str
    common: str


def find_repository(source: str) -> Repository:
    """The repository in which a directory lies. (Blocks; not for the loop.)"""
    top = os.path.realpath(source)
    while not os.path.lexists(f"{top}/.git"):
        if top == "/":
            raise RetinueError(f"{source} is not in a git repository")
        top = os.path.dirname(top)
    repository = Repository(top, *_directories(top))
    users = {os.lstat(path).st_uid for path in (top, repository.own, repository.common)}
    if os.geteuid() != 0 and not users <= {os.geteuid(), 0}:
        raise RetinueError(f"the git repository {top} belongs to another user")
    return repository


def _directories(top: str) -> tuple[str, str]:
    """The two git directories of a worktree. What a `.git` file names must agree: it came with the
    project, and could name any repository of the machine."""
    git = f"{top}/.git"
    if os.path.isdir(git):
        real = os.path.realpath(git)
        if not beneath(real, (top,)) or os.path.lexists(f"{real}/commondir"):
            raise RetinueError(f"{git} points to another repository")
        return real, real
    if (linked := worktree_of(top)) is not None:
        return linked
    try:
        own = os.path.realpath(
            os.path.join(top, read_text(git, 4096).removeprefix("gitdir:").strip())
        )
        back = WORKTREE.search(read_text(f"{own}/config"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RetinueError(f"{top} is not a readable git repository ({git}: {reason})") from None
    if back is None or os.path.realpath(os.path.join(own, back[1])) != top:
        raise RetinueError(f"{git} points to another repository, which does not list it")
    return own, own


def build_copy(
    repository: Repository, settings: str, ignored: str, folders: tuple[str, ...], logs: bool
) -> tuple[str, int, tuple[str, ...]]:
    """Everything that git needs to know about a repository and that cannot make it run something:
    copies, but for the objects."""
    own, common = repository.own, repository.common
    head = read_small(f"{own}/HEAD", 8192)
    _plain(common, "objects", "refs", "refs/heads", "refs/heads/retinue")
    borrowed = git_objects.check(common, (repository.top, common, *folders))
    references = git_refs.read(own, common)
    references.check(head, common)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(f"{own}/index").st_mode):
            raise OSError(22, "it is not a regular file", f"{own}/index")
    folder, lock = git_folders.make()
    try:
        Path(folder, "HEAD").write_bytes(head)
        os.mkdir(f"{folder}/info")
        with contextlib.suppress(OSError):
            Path(folder, "info/exclude").write_bytes(read_small(f"{common}/info/exclude"))
        with contextlib.suppress(OSError):
            if ignored:
                Path(folder, "ignored").write_bytes(read_small(ignored))
                settings += "\n".join(setting_line("core.excludesfile", f"{folder}/ignored")) + "\n"
        Path(folder, "config").write_text(
            settings + OURS, encoding="utf-8", errors="surrogateescape"
        )
        os.symlink(f"{common}/objects", f"{folder}/objects")
        references.put(folder)
        _copy_plain(own, common, folder)
        if logs and os.path.isdir(f"{own}/logs") and not os.path.islink(f"{own}/logs"):
            os.symlink(f"{own}/logs", f"{folder}/logs")
    except BaseException:
        discard(folder, lock)
        raise
    return folder, lock, borrowed


def _plain(common: str, *names: str) -> None:
    """What git writes to must lie in the repository: no link leads out on the way."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(f"{common}/{name}").st_mode):
                raise OSError(22, "it is not a directory inside the repository", f"{common}/{name}")


def _copy_plain(own: str, common: str, folder: str) -> None:
    """The small files in which a repository keeps the state of what is being done in it. What is
    none is omitted."""
    for source in dict.fromkeys((own, common)):
        top = open_real(source)
        try:
            for name in os.listdir(f"/proc/self/fd/{top}"):
                if COPIED.fullmatch(name) and not os.path.lexists(f"{folder}/{name}"):
                    with contextlib.suppress(OSError):
                        data = read_small(name, MOST_INDEX, dir_fd=top, follow=False)
                        Path(folder, name).write_bytes(data)
        finally:
            os.close(top)


def discard(folder: str, lock: int) -> None:
    folders.remove(folder)
    os.close(lock)


async def kept_settings(settings: bytes) -> str:
    """The harmless part of a configuration, written anew."""
    listed = await run(
        ("config", "--file", "-", "--no-includes", "--list", "-z"), base(), fed=settings
    )
    lines = ["[core]", " repositoryformatversion = 0"]
    for entry in os.fsdecode(listed).split("\0"):
        name, is_set, value = entry.partition("\n")
        if name == "extensions.refstorage" and value != "files":
            raise RetinueError(f"its references are stored as {value!r}, which is not supported")
        if is_set and KEPT.fullmatch(name):
            lines += setting_line(name, value)
    return "\n".join(lines) + "\n"


async def ignored_by_user(home: str) -> str:
    """The one setting of the user's own that counts: which files are never meant to be kept."""
    if home not in _ignored:
        environ = {name: value for name, value in base().items() if name != "GIT_CONFIG_GLOBAL"}
        try:
            output = await run(
                ("config", "--global", "--type=path", "--get", "core.excludesFile"), environ
            )
            _ignored[home] = os.fsdecode(output).rstrip("\n")
        except RetinueError:
            _ignored[home] = ""
    return _ignored[home]


_ignored: dict[str, str] = {}


def setting_line(name: str, value: str) -> Iterable[str]:
    section, _, rest = name.partition(".")
    inner, _, key = rest.rpartition(".")
    yield f"[{section} {_quoted(inner)}]" if inner else f"[{section}]"
    yield f" {key} = {_quoted(value)}"
    if name == "extensions.objectformat":
        yield from ("[core]", " repositoryformatversion = 1")


def _quoted(text: str) -> str:
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    )
    return f'"{escaped}"'
