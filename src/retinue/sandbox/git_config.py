"""Settings of a repository that make git run something: its hooks folder and others. They are read
as git reads them, with everything that they include, but nothing is waited for and no more is read
than some."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator

from retinue.sandbox.regular_file import read_text

SECTION = re.compile(r'\[\s*([\w.-]+)(?:[ \t]+"((?:[^"\\\n]|\\.)*)")?\s*\]', re.ASCII)
KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*", re.ASCII)
ESCAPES = {"n": "\n", "t": "\t", "b": "\b"}
MOST_FILES = 64
WHY_HOOKS = "git runs its hooks from there (core.hooksPath)"
WHY_INCLUDED = "git's settings include it, and it can name programs that git runs"


def settings(text: str) -> Iterator[tuple[str, str, str]]:
    """Section, key and value of each setting; the section without the part in quotes, it and the
    key in lower case. (`[a] b = c` may be on one line, a value continue in the next.)"""
    at, section = 1 if text.startswith("\ufeff") else 0, ""
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] == "[" and (match := SECTION.match(text, at)):
            section, at = match[1].lower().partition(".")[0], match.end()
        elif match := KEY.match(text, at):
            key, at = match[1].lower(), match.end()
            value = ""
            if text[at : at + 1] == "=":
                value, at = _value(text, at + 1)
            yield section, key, value
        else:  # a comment, or what git would complain about
            end = text.find("\n", at)
            at = len(text) if end < 0 else end


def _value(text: str, at: int) -> tuple[str, int]:
    """A value from where it begins, and where it ends. What is not in quotes loses the space around
    it."""
    letters: list[str] = []
    n_kept = 0
    is_quoted = False
    while at < len(text) and text[at] != "\n":
        here, after = text[at], text[at + 1 : at + 2]
        at += 1
        if here == "\\":
            at += 2 if text.startswith("\r\n", at) else 1
            if after not in ("\n", "\r"):
                letters.append(ESCAPES.get(after, after))
                n_kept = len(letters)
        elif here == '"':
            is_quoted = not is_quoted
        elif here in "#;" and not is_quoted:
            end = text.find("\n", at)
            return "".join(letters[:n_kept]), len(text) if end < 0 else end
        elif is_quoted or not here.isspace():
            letters.append(here)
            n_kept = len(letters)
        elif letters:
            letters.append(here)
    return "".join(letters[:n_kept]), at


def named(top: str) -> dict[str, str]:
    """The paths that git's settings name in a repository at `top`, each as written and as it really
    is, and why it matters. The settings of the user and of the machine count too: `core.hooksPath`
    in them may be relative."""
    reasons: dict[str, str] = {}
    waiting, visited = [*_own_files(top), *_users_files()], set[str]()
    while waiting and len(visited) < MOST_FILES:
        file = waiting.pop(0)
        if file in visited:
            continue
        visited.add(file)
        text = ""
        with contextlib.suppress(OSError):
            text = read_text(file)
        for section, key, value in settings(text):
            if section in ("include", "includeif") and key == "path" and value:
                included = _path(value, os.path.dirname(file))
                waiting.append(included)
                _note(reasons, included, top, WHY_INCLUDED)
            elif section == "core" and key == "hookspath" and value:
                _note(reasons, _path(value, top), top, WHY_HOOKS)
    return reasons


def named_beneath(root: str, root_fd: int, others: Iterable[str] = ()) -> Iterator[str]:
    """The same as paths beneath a directory that is held open: of the repositories in which it
    lies, and of those at the `others`."""
    start = root.rstrip("/") + "/"
    if os.readlink(f"/proc/self/fd/{root_fd}") == root:
        tops = (
            top
            for top in dict.fromkeys((*_upwards(root), *others))
            if os.path.lexists(f"{top}/.git")
        )
        places = dict.fromkeys(
            place for top in tops for place in named(top) if place.startswith(start)
        )
        yield from (place[len(start) :] for place in places)


def _upwards(path: str) -> Iterator[str]:
    yield path
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _path(value: str, base: str) -> str:
    if "\0" in value:
        return base
    return os.path.normpath(os.path.join(base, os.path.expanduser(value)))  # also ~user


def _note(reasons: dict[str, str], path: str, top: str, why: str) -> None:
    for place in (path, os.path.realpath(path)):
        is_around = f"{top.rstrip('/')}/".startswith(
            f"{place.rstrip('/')}/"
        )  # then all would be git's
        if not is_around and not f"{place}/".startswith(
            f"{top.rstrip('/')}/.git/"
        ):  # that is protected anyway
            reasons[place] = why


def _own_files(top: str) -> Iterator[str]:
    own = f"{top}/.git"
    with contextlib.suppress(OSError):
        if not os.path.isdir(own):
            own = os.path.join(top, read_text(own, 8192).removeprefix("gitdir:").strip())
    common = own
    with contextlib.suppress(OSError):
        common = os.path.join(own, read_text(f"{own}/commondir", 8192).strip())
    yield from (os.path.normpath(f"{common}/config"), os.path.normpath(f"{own}/config.worktree"))


def _users_files() -> Iterator[str]:
    home, folder = os.path.expanduser("~"), os.environ.get("XDG_CONFIG_HOME", "")
    yield from ("/etc/gitconfig", f"{home}/.gitconfig", f"{home}/.config/git/config")
    if os.path.isabs(folder):
        yield f"{folder}/git/config"
