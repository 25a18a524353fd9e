"""What neither a command nor a file tool may see: what belongs to the runtime itself, and the
secrets in home directories. One value, `Private`, is made where a runtime is put together; the
sandbox and the file tools ask it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from retinue.errors import Refused, StoreError
from retinue.sandbox import mount_aliases as mounts
from retinue.sandbox.directory_walk import OPEN, walk_folders
from retinue.sandbox.protected_paths import PROJECT, home_directories, names, plain

# In every home directory, with all that is in them: keys, passwords, histories of shells, profiles
# of browsers.
SECRETS = tuple(
    tuple(path.split("/"))
    for path in (
        "Library/Application Support",
        *sorted(
            names(
                ".ssh .aws .azure .config .docker .gcloud .gnupg .kube .netrc .npmrc .pypirc "
                ".git-credentials "
                ".gitconfig .my.cnf .pgpass .password-store .terraformrc .terraform.d "
                ".cargo/credentials "
                ".cargo/credentials.toml .local/state .local/share/keyrings .local/share/retinue "
                ".cache/retinue "
                ".mozilla .bash_history .python_history .zsh_history .psql_history .claude "
                ".claude.json .codex .gemini "
                ".vault-token .m2/settings.xml .m2/settings-security.xml .gem/credentials "
                ".gradle/gradle.properties "
                ".s3cfg .boto .authinfo .authinfo.gpg .oci .cache/huggingface/token "
                ".cache/huggingface/stored_tokens "
                ".rclone.conf .msmtprc .fetchmailrc .mbsyncrc .subversion/auth .hgrc .thunderbird "
                ".mysql_history "
                ".mylogin.cnf .sqlite_history .node_repl_history .irb_history .rediscli_history "
                ".lesshst .viminfo "
                ".kaggle .composer/auth.json .bundle/config .yarnrc .yarnrc.yml "
                ".pulumi/credentials.json "
                ".databrickscfg .Xauthority .ICEauthority .smbcredentials .fly .local/share/fish "
                ".pki .snowsql "
                ".ngrok2 .copilot snap Library/Keychains Library/Cookies Library/Mail "
                "Library/Messages Library/Safari"
            )
        ),
    )
)
_FOLDED = tuple(tuple(plain(part) for part in secret) for secret in SECRETS)
_FIRST = (".", *sorted({secret[0] for secret in _FOLDED if not secret[0].startswith(".")}))
# Names with a dot that somebody who works in a home directory sees there: what a project has, and
# what is made anew. Everything else with a dot is hidden, since no list of the programs that keep
# passwords and histories is ever whole.
USUAL = PROJECT | names(
    ".git .hg .jj .svn .gitmodules .gitlab .circleci .travis.yml .husky .githooks .vscode .idea "
    ".zed .devcontainer "
    ".retinue .venv .tox .nox .pytest_cache .mypy_cache .ruff_cache .hypothesis "
    ".ipynb_checkpoints .next .nuxt .turbo "
    ".tool-versions .node-version .ruby-version .terraform-version .npmignore .babelrc "
    ".browserslistrc .stylelintrc "
    ".eslintrc.js .eslintrc.cjs .eslintrc.yml .eslintignore .prettierrc.json .clang-format "
    ".clang-tidy .rustfmt.toml "
    ".golangci.yml .pylintrc .isort.cfg .yamllint .markdownlint.json .rubocop.yml "
    ".readthedocs.yaml .codecov.yml"
)
# What lies beside the file of a store and has its name, with one of these behind it. Files that are
# written anew are kept inside of the folders: whoever replaces a file that is masked in a sandbox
# takes the mask away with it.
FOLDERS = (".tools", ".plans", ".artifacts")
TAILS = (*FOLDERS, "-wal", "-shm", "-journal", ".lock", ".sent", ".sock", ".sock.key")
# The head of a database file that is one of ours.
MAGIC, APPLICATION = b"SQLite format 3\0", (0x52455431).to_bytes(4, "big")
MOST_FILES, FRESH_SECONDS = 200_000, 5
TEMPORARY = "retinue-state"
"""How the private folder of a runtime in memory is called, with something behind it."""
OURS = "it belongs to Retinue itself (its store, settings, or what it keeps beside them)"
SECRET = (
    "in a home directory this is kept from models: keys, passwords and the settings of other "
    "programs are in it"
)


@dataclass(frozen=True, slots=True)
class Private:
    """`store` is the runtime's own file, `stores` those of others that are known, each with
    everything beside it that has its name in front; `folders` are hidden whole."""

    store: str = ""
    stores: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def why(self, path: str, root: str = "") -> str:
        """Why the file at `path` is not for a model, or "". It is absolute and resolved, as is
        `root`, the directory in which the caller works: in a copy of its own, a run may see that
        copy."""
        known = self._known()
        if known.copy(path) and known.copy(path) == known.copy(root):
            return ""
        return known.why(path, root) or (OURS if _of_another(path) else "")

    def hides(self, root: str) -> Callable[[str], bool]:
        """For whoever lists a directory: whether an entry beneath `root`, which is resolved, is
        left out."""
        top, known = root.rstrip("/"), self._known()
        mine = known.copy(root)

        def is_hidden(path: str) -> bool:
            whole = f"{top}/{path}"
            if known.why(whole, top):
                return not mine or known.copy(whole) != mine
            return path.endswith(TAILS) and _of_another(whole)

        return is_hidden

    def is_linked(self, found: os.stat_result) -> bool:
        """Whether a file with more than one name is one of those that are hidden."""
        if found.st_nlink < 2:
            return False
        return (found.st_dev, found.st_ino) in _numbers(self, int(time.monotonic() / FRESH_SECONDS))

    def _files(self) -> Iterator[os.stat_result]:
        known = self._known()
        secrets = (f"{home}/{'/'.join(path)}" for home in home_directories() for path in SECRETS)
        places = (*(p for store in known.stores for p in _beside(store)), *known.folders, *secrets)
        for place in places:
            with suppress(OSError):
                if stat.S_ISREG((first := os.lstat(place)).st_mode):
                    yield first
        # Files that stand by themselves come first, and a folder with very many last: it must not
        # hide the others.
        for place in places:
            with suppress(OSError):
                yield from _below(place)

    def refuse(self, path: str) -> None:
        """A directory in which something hidden is kept is not given to a command."""
        if why := self.why(path, path):
            raise Refused(
                "private",
                f"{path} is not given to commands: {why}. Nothing was run. Work in another "
                "directory.",
            )

    def beneath(self, roots: Iterable[str]) -> list[str]:
        """What there is to hide in these directories, by resolved paths; what lies in another of
        them is left out."""
        tops = tuple(dict.fromkeys(roots))
        known = self._known()
        stores = dict.fromkeys((*known.stores, *(s for top in tops for s in stores_in(top))))
        found = [path for path in known.folders if _inside(path, tops)]
        for store in stores:
            if _inside(os.path.dirname(store), tops):
                found += _beside(store)
        found += [path for path in _secret_places(tops) if _inside(path, tops)]
        kept: list[str] = []
        for path in sorted(dict.fromkeys(found), key=len):
            if os.path.lexists(path) and not _inside(path, kept):
                kept.append(path)
        return kept

    def hold(self, roots: Iterable[str]) -> None:
        """Before something is run in these directories: what would come up in them later is made
        now, or the command would see it or make it itself; and a store with a second name cannot be
        hidden."""
        tops = tuple(roots)
        for folder in map(os.path.realpath, self.folders):
            top = next((top for top in tops if _inside(folder, (top,))), "")
            if top and not self.why(os.path.dirname(folder), top):
                with suppress(OSError):
                    os.makedirs(folder, 0o700, exist_ok=True)
        store = os.path.realpath(self.store)
        if not self.store or not os.path.exists(store) or not _inside(os.path.dirname(store), tops):
            return
        for tail in FOLDERS:
            with suppress(OSError):
                os.mkdir(store + tail, 0o700)
        for tail in ("", "-wal", "-shm", ".sent", ".sock.key"):
            with suppress(OSError):
                if os.lstat(store + tail).st_nlink > 1:
                    raise Refused(
                        "private",
                        f"{store + tail} has a second name (a hard link), which cannot be hidden "
                        "from a command; "
                        "nothing was run. Remove the other name, or keep the store outside of the "
                        "workspace.",
                    )

    def _known(self) -> _Known:
        return _known(self, mounts.mountinfo(), home_directories())


@dataclass(frozen=True, slots=True)
class _Known:
    folders: frozenset[str]
    inside: tuple[str, ...]
    stores: tuple[str, ...]
    homes: tuple[str, ...]
    secrets: tuple[str, ...]

    def why(self, path: str, root: str = "") -> str:
        if path in self.folders or path.startswith(self.inside):
            return OURS
        if path.startswith(self.stores) and any(_is_part(path, store) for store in self.stores):
            return OURS
        if path.startswith(self.homes) and any(_is_secret(path, home, root) for home in self.homes):
            return SECRET
        return SECRET if f"{path}/".startswith(self.secrets) else ""

    def copy(self, path: str) -> str:
        """The copy of a repository, made for a run, in which a path lies. (Notes about copies have
        an ending.)"""
        for store in self.stores if path.startswith(self.stores) else ():
            parts = path[len(store) :].split("/")
            if len(parts) > 2 and parts[1] == "worktrees" and "." not in parts[2]:
                return f"{store}{'/'.join(parts[:3])}"
        return ""


NOTHING = Private()
"""Where there is no runtime: the secrets of home directories only."""


def _below(place: str) -> Iterator[os.stat_result]:
    top = os.open(place, OPEN)
    try:
        for _, _, others, fd in walk_folders(top):
            for other in others:
                with suppress(OSError):
                    yield os.stat(other.name, dir_fd=fd, follow_symlinks=False)
    finally:
        os.close(top)


@lru_cache(maxsize=16)
def _known(private: Private, mountinfo: bytes, homes: tuple[str, ...]) -> _Known:
    """The places by every path that leads to them: through links, and through mounts of the same
    directory."""
    known = mounts.parsed(mountinfo)
    folders = {q for p in private.folders for q in mounts.aliases(p, known)}
    folders |= {os.path.realpath(e.path) for p in private.folders for e in _links(p)}
    files = {r for p in (private.store, *private.stores) if p for r in (p, os.path.realpath(p))}
    stores = {
        f"{q}/{os.path.basename(r)}"
        for r in files
        for q in mounts.aliases(os.path.dirname(r), known)
    }
    inside, prefixes = (tuple(f"{p}/" for p in sorted(group)) for group in (folders, homes))
    # By their real paths, and through mounts of a part of a home: there the name says nothing.
    places = {
        q
        for home in homes
        for secret in SECRETS
        for q in mounts.aliases(f"{home}/{'/'.join(secret)}", known)
    }
    secrets = tuple(sorted(f"{place}/" for place in places))
    return _Known(frozenset(folders), inside, tuple(sorted(stores)), prefixes, secrets)


@lru_cache(maxsize=4)
def _numbers(private: Private, moment: int) -> frozenset[tuple[int, int]]:
    """Every hidden file by its number. A search asks for each of its hits, so this is kept for a
    moment."""
    return frozenset((f.st_dev, f.st_ino) for f in islice(private._files(), MOST_FILES))


def _links(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [e for e in entries if e.is_symlink()]
    except OSError:
        return []


def stores_in(folder: str) -> Iterator[str]:
    """The stores at the top of a directory, of whatever program: they are known by their heads."""
    try:
        names = {name for name in os.listdir(folder) if name.endswith(".lock")}
    except OSError:
        return
    for name in names:
        if is_store(path := f"{folder.rstrip('/')}/{name.removesuffix('.lock')}"):
            yield path


def refuse_links(store: str) -> None:
    """What lies beside a store must be what it seems: through a link, files of somebody else would
    be written over, and what is kept there would lie where nothing hides it."""
    for tail in TAILS:
        with suppress(OSError):
            mode = os.lstat(store + tail).st_mode
            if stat.S_ISLNK(mode):
                what = "a link"
            elif stat.S_ISDIR(mode) != (tail in FOLDERS):
                what = "not a directory" if tail in FOLDERS else "a directory"
            elif tail in FOLDERS or stat.S_ISREG(mode) or tail == ".sock":
                continue
            else:
                what = "not a regular file"
            raise StoreError(
                f"{store + tail} belongs to the store and is {what}, so the store is not used. "
                "Nothing was changed. "
                "Remove it if it is not wanted, or choose another file."
            )


def is_store(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        head = os.pread(fd, 72, 0) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return False
    finally:
        os.close(fd)
    return head.startswith(MAGIC) and head[68:72] == APPLICATION


def _secret_places(tops: tuple[str, ...]) -> Iterator[str]:
    """Where the secrets are of whoever runs this, and of everybody whose home lies in these
    directories. A link leads to them from anywhere."""
    mine = os.path.realpath(os.path.expanduser("~"))
    for home in home_directories():
        if home == mine or _inside(home, tops):
            for secret in SECRETS:
                if os.path.lexists(path := f"{home}/{'/'.join(secret)}"):
                    yield os.path.realpath(path)
        if _inside(home, tops):
            yield from (f"{home}/{name}" for name in _dotted(home))


def _dotted(home: str) -> list[str]:
    """What else in a home directory is hidden from whoever works in it. (A link shows what is
    visible anyway.)"""
    try:
        with os.scandir(home) as entries:
            return [e.name for e in entries if _is_unusual(plain(e.name)) and not e.is_symlink()]
    except OSError:
        return []


def _is_unusual(folded: str) -> bool:
    return folded.startswith(".") and folded not in USUAL


def _beside(store: str) -> list[str]:
    folder, base = os.path.split(store)
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [
        path
        for name in names
        if _is_part(path := f"{folder.rstrip('/')}/{name}", f"{folder}/{base}")
    ]


def _is_part(path: str, store: str) -> bool:
    return path.startswith(store) and path[len(store) : len(store) + 1] in ("", "-", ".", "/")


def _of_another(path: str) -> bool:
    """Whether it is, or lies in, what is kept beside a store that we were not told of."""
    for tail in TAILS:
        at = path.find(tail)
        while at > 0:
            if path[at + len(tail) : at + len(tail) + 1] in ("", "/") and is_store(path[:at]):
                return True
            at = path.find(tail, at + 1)
    return os.path.lexists(path + ".lock") and is_store(path)


def _is_secret(path: str, home: str, root: str) -> bool:
    """The listed ones are secret for everybody; all else that is unusual, unless it is the place of
    work itself."""
    rest = path[len(home) :] if path.startswith(home) else ""
    if not rest or (rest.isascii() and not rest.lower().startswith(_FIRST)):  # as nearly all do
        return False
    parts = tuple(plain(part) for part in rest.split("/"))
    if any(parts[: len(secret)] == secret for secret in _FOLDED):
        return True
    return _is_unusual(parts[0]) and not _inside(root, (home + rest.split("/")[0],))


def _inside(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)
