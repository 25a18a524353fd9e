"""Files that file tools never write, create, move or remove, because another program runs or trusts
them as soon as someone enters, opens or commits in the directory. The names below are the whole
list."""

from __future__ import annotations

import contextlib
import os
import pwd
import time
import unicodedata
from functools import lru_cache
from itertools import pairwise

from retinue.sandbox import git_config
from retinue.sandbox import mount_aliases as mounts


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Directories that are protected with all that is in them, wherever they are. A `.git` that is a
# file (of a worktree, of a submodule) is protected too: it says where the hooks are.
DIRECTORIES = {
    ".git": "git runs its hooks and the programs its config names",
    ".hg": "Mercurial runs the hooks of its hgrc",
    ".jj": "Jujutsu runs the programs its config names",
    ".svn": "it belongs to Subversion",
    ".husky": "it contains git hooks",
    ".githooks": "it contains git hooks",
    ".retinue": "it configures Retinue and its agents",
    ".claude": "it configures agents and their hooks",
    ".codex": "it configures agents",
    ".gemini": "it configures agents",
    ".opencode": "it configures agents",
    ".cursor": "it configures agents",
    ".copilot": "it configures agents",
    ".vscode": "the editor runs its tasks",
    ".idea": "the editor runs its configurations",
    ".zed": "the editor runs its tasks",
    ".devcontainer": "the editor runs its commands",
}
PAIRS = {(".github", "agents"): "it defines agents"}
FILES = {
    ".mcp.json": "it lists servers that are started",
    "opencode.json": "it configures agents",
    "opencode.jsonc": "it configures agents",
    ".envrc": "direnv runs it",
    ".gitmodules": "git reads the URLs of submodules from it",
}
# At the top of a root, which a shell may be given as its home, and in every home directory.
PROFILES = names(
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv "
    ".zprofile .zlogin .zlogout .cshrc .tcshrc .login .logout .kshrc .mkshrc .inputrc .xprofile "
    ".xinitrc .xsession .xsessionrc .pam_environment .gitconfig .hgrc .netrc .pypirc .npmrc .vimrc "
    ".exrc .emacs .tmux.conf .screenrc .gdbinit .pythonrc"
)
# In a home directory even when the root is one of these themselves: a task may not choose them as
# its place of work.
HOME_DIRECTORIES = names(
    ".ssh .gnupg .aws .kube .docker .config .pki .password-store .emacs.d .vim bin .cargo .rustup "
    ".npm .nvm .yarn .bun .deno .pyenv .rbenv .asdf .sdkman .gem .bundle .conda .ipython .jupyter "
    ".gradle .m2 .sbt .oh-my-zsh .bashrc.d .zsh .zfunc .tmux .vscode-server .mozilla .thunderbird "
    ".dbus"
)
HOME_PAIRS = {(".local", "bin"), (".local", "lib"), (".local", "share"), (".local", "state")}
# Names with a dot that a project keeps at its top; in a root that is a home directory all others
# are protected.
PROJECT = names(
    ".gitignore .gitattributes .gitkeep .dockerignore .editorconfig .github .gitlab-ci.yml "
    ".pre-commit-config.yaml .python-version .nvmrc .prettierrc .prettierignore .eslintrc "
    ".eslintrc.json .coveragerc .flake8 .env.example"
)
# File systems that are not files but the kernel itself.
KERNEL = ("proc", "sys", "dev")
# Worktrees of runs may be kept here; a run that works in one is judged as if it were separate.
WORKTREES = ((".retinue", "worktrees"), (".claude", "worktrees"))


def protected(path: str, root: str) -> str | None:
    """Why the file at `path` must be left alone, or None. Both are absolute and resolved: no links,
    no `..`.

    The whole path counts, not only the part beneath `root`: who works in `.git/hooks` is not to
    write there either."""
    if kernels(path):
        return "files in /proc, /sys and /dev belong to the kernel"
    parts, top = _parts(path), _parts(root)
    start = _inside_worktree(parts, top)
    for i in range(start, len(parts)):
        part = parts[i]
        why = DIRECTORIES.get(part) or (PAIRS.get((parts[i - 1], part)) if i else None)
        if why:
            return f"{part} is protected: {why}"
    name = parts[-1] if parts else ""
    if name in FILES:
        return f"{name} is protected: {FILES[name]}"
    if name in PROFILES and len(parts) == len(top) + 1:
        return f"{name} is protected: shells and programs run or trust it in a home directory"
    return _at_home(parts, top) or git_directory(path) or named_by_git(path)


def at_top(name: str, root: str) -> str:
    """Why an entry at the top of a root is protected, or "". In a home directory that is almost all
    with a dot."""
    folded, path = plain(name), f"{root.rstrip('/')}/{name}"
    listed = DIRECTORIES.get(folded) or FILES.get(folded) or _at_home(_parts(path), _parts(root))
    return listed or _named(path, _named_lately(root, int(time.monotonic())))


def workplace(root: str) -> str:
    """Why a directory may not be given to be written, or "": it is, or lies in, something that is
    protected."""
    parts = _parts(root)
    listed = next(
        (f"{p} is protected" for p in parts[_inside_worktree(parts, parts) :] if p in DIRECTORIES),
        "",
    )
    return listed or _at_home([*parts, "x"], parts) or ""


def _parts(path: str) -> list[str]:
    return [plain(p) for p in path.split("/") if p]


def kernels(path: str) -> bool:
    """Whether an absolute, resolved path belongs to the kernel."""
    return path.split("/", 2)[1] in KERNEL


def plain(name: str) -> str:
    """A name as a file system that folds case, normalises or ignores invisible characters would
    take it."""
    folded = name.lower() if name.isascii() else unicodedata.normalize("NFKC", name).casefold()
    if not folded.isascii():
        folded = unicodedata.normalize(
            "NFC", "".join(c for c in folded if unicodedata.category(c) != "Cf")
        )
    folded = folded.split(":", 1)[0] if folded.startswith(".") else folded  # alternate data streams
    folded = folded.rstrip(" .") or folded
    return ".git" if folded in ("git~1", "git~2") else folded


def git_directory(path: str) -> str | None:
    """A repository can have any name: what lies in a directory with HEAD, objects and refs is
    git's, and the last of the three may not be made."""
    below, name = os.path.split(path)
    child = plain(name)
    while below:
        has = [c for c in ("HEAD", "objects", "refs") if os.path.lexists(f"{below}/{c}")]
        if len(has) == 3:
            return (
                f"{below} is a git directory: git runs its hooks and the programs its config names"
            )
        if len(has) == 2 and child in {"head", "objects", "refs"} - {plain(c) for c in has}:
            return (
                f"with {name}, the directory {below} would become a git directory, and "
                "git would use its config"
            )
        if below == "/":
            break
        below, name = os.path.split(below)
        child = plain(name)
    return None


def named_by_git(path: str) -> str | None:
    """What the settings of a repository name in it, wherever it lies, is git's too: its hooks and
    further settings."""
    top = os.path.dirname(path)
    while True:
        if why := _named(path, git_config.named(top) if os.path.lexists(f"{top}/.git") else {}):
            return f"{os.path.relpath(path, top)} is protected: {why}"
        if top == "/":
            return None
        top = os.path.dirname(top)


def _named(path: str, places: dict[str, str]) -> str:
    """Why git obeys what is at `path`, or in a folder around it; "" when it does not."""
    parts = _parts(path) if places else []
    return next((why for place, why in places.items() if parts[: len(p := _parts(place))] == p), "")


@lru_cache(maxsize=16)
def _named_lately(top: str, second: int) -> dict[str, str]:
    """For who asks about many names in a row, several times a second."""
    return git_config.named(top) if os.path.lexists(f"{top}/.git") else {}


def _inside_worktree(parts: list[str], top: list[str]) -> int:
    """How many names lead to the worktree that the root is in; 0 when it is in none."""
    for i in range(len(top) - 2):
        if (top[i], top[i + 1]) in WORKTREES and parts[: i + 3] == top[: i + 3]:
            return i + 3
    return 0


def _at_home(parts: list[str], top: list[str]) -> str | None:
    if any(a.endswith(".tools") and b == "worktrees" for a, b in pairwise(top[:-1])):
        return None  # a copy that a runtime has made for a run, wherever it keeps its store
    for home in homes():
        n = len(home)
        if parts[:n] != list(home) or len(parts) == n:
            continue
        first = parts[n]
        is_pair = len(parts) > n + 1 and (first, parts[n + 1]) in HOME_PAIRS
        if is_pair or first in HOME_DIRECTORIES or (first in PROFILES and len(parts) == n + 1):
            return f"{first} of a home directory is protected: programs run or trust its content"
        if first.startswith(".") and first not in PROJECT and len(top) <= n:
            return (
                f"{first} is protected: the root is a home directory, where such names "
                "configure programs"
            )
    return None


def homes() -> tuple[tuple[str, ...], ...]:
    """The home directories of this machine's people, as components."""
    return _homes(os.path.expanduser("~"), mounts.lately())[1]


def home_directories() -> tuple[str, ...]:
    """The same as resolved paths."""
    return _homes(os.path.expanduser("~"), mounts.lately())[0]


@lru_cache(maxsize=8)
def _homes(mine: str, mountinfo: bytes) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    folders = {mine}
    with contextlib.suppress(
        KeyError, OSError
    ):  # no user database: the environment's word has to do
        folders |= {
            u.pw_dir for u in pwd.getpwall() if u.pw_uid in (0, os.getuid()) or u.pw_uid >= 1000
        }
    whole = {os.path.realpath(h) for h in folders if h.startswith("/")} - {"/", "/nonexistent"}
    parsed_mounts = mounts.parsed(mountinfo)
    real = sorted(
        {path for home in whole for path in mounts.aliases(home, parsed_mounts, parts=False)}
        - {"/"}
    )
    return tuple(real), tuple(tuple(plain(p) for p in h.split("/") if p) for h in real)
