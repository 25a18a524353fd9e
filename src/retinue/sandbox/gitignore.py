"""Which files .gitignore omits, by git's rules: the last matching rule decides, a deeper file
overrides a higher one, and ignored directories are not read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from retinue.formats.globs import BadGlob, path_glob
from retinue.sandbox.open_beneath import open_beneath
from retinue.sandbox.regular_file import drain, open_regular

NAME = ".gitignore"
MAX_BYTES = 1 << 20
PLAIN = re.compile(r"[^*?\[\\/]+")
SUFFIX = re.compile(r"\*(\.[^*?\[\\/]+)")


class Block:
    """Rules in a row with the same sign. The common kinds (a name, an ending) are looked up, not
    tried one by one."""

    __slots__ = ("dir_names", "endings", "ignores", "names", "others")

    def __init__(self, ignores: bool) -> None:
        self.ignores = ignores
        self.names: set[str] = set()
        self.dir_names: set[str] = set()
        self.endings: tuple[str, ...] = ()
        self.others: list[tuple[Callable[[str], bool], bool]] = []

    def add(self, pattern: str, only_dirs: bool, anchored: bool) -> None:
        if not anchored and PLAIN.fullmatch(pattern):
            (self.dir_names if only_dirs else self.names).add(pattern)
        elif not anchored and not only_dirs and (ending := SUFFIX.fullmatch(pattern)):
            self.endings += (ending[1],)
        else:
            self.others.append((path_glob(pattern, anchored=anchored).matches, only_dirs))

    def matches(self, path: str, name: str, is_dir: bool) -> bool:
        if name in self.names or (is_dir and name in self.dir_names):
            return True
        if self.endings and name.endswith(self.endings):
            return True
        return any((is_dir or not only_dirs) and match(path) for match, only_dirs in self.others)


def parse(text: str) -> list[Block]:
    """The rules of one file, the last first."""
    blocks: list[Block] = []
    for raw in text.removeprefix("\ufeff").split("\n"):
        line = _trimmed(raw.removesuffix("\r"))
        if not line or line.startswith("#"):
            continue
        ignores = not line.startswith("!")
        pattern = line if ignores else line[1:]
        if pattern.startswith(("\\#", "\\!")):
            pattern = pattern[1:]
        only_dirs = pattern.endswith("/")
        body = pattern.rstrip("/") if only_dirs else pattern
        if not body.strip("/"):
            continue
        if not blocks or blocks[0].ignores != ignores:
            blocks.insert(0, Block(ignores))
        try:
            blocks[0].add(body.lstrip("/"), only_dirs, anchored="/" in body)
        except BadGlob:  # git, too, passes over what it cannot read
            continue
    return blocks


def _trimmed(line: str) -> str:
    """Without the spaces at its end, except one that is escaped."""
    cut = line.rstrip(" \t")
    n_escapes = len(cut) - len(cut.rstrip("\\"))
    return line[: len(cut) + 1] if n_escapes % 2 and len(cut) < len(line) else cut


@dataclass(frozen=True, slots=True)
class Ignores:
    """The rules that hold in a directory: those of its own file, then those of the directories
    above."""

    blocks: tuple[Block, ...] = ()
    base: int = 0
    above: Ignores | None = None

    def below(self, dir_fd: int, base: int) -> Ignores:
        """With the file of one more directory, whose entries have paths of which `base` characters
        are its own."""
        text = read(dir_fd)
        if not text:
            return self
        blocks = parse(text)
        return Ignores(tuple(blocks), base, self) if blocks else self

    def match(self, path: str, name: str, is_dir: bool) -> bool:
        rules: Ignores | None = self
        while rules is not None:
            if rules.blocks:
                rest = path[rules.base :]
                for block in rules.blocks:
                    if block.matches(rest, name, is_dir):
                        return block.ignores
            rules = rules.above
        return False


NONE = Ignores()


def read(dir_fd: int) -> str:
    """The ignore file of a directory. A link to one is not followed, and what cannot be read has no
    rules."""
    try:
        data = drain(open_regular(NAME, dir_fd=dir_fd, follow=False), MAX_BYTES)
    except OSError:
        return ""
    return data[:MAX_BYTES].decode("utf-8", "surrogateescape")


def chain(root_fd: int, path: str) -> Ignores:
    """The rules of the directories above `path`, which is relative to the root and free of
    links."""
    rules = NONE
    parts = [p for p in path.split("/") if p not in ("", ".")]
    for i in range(len(parts)):
        above = "/".join(parts[:i])
        try:
            fd = open_beneath(root_fd, above or ".", os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            break
        try:
            rules = rules.below(fd, len(above) + 1 if above else 0)
        finally:
            os.close(fd)
    return rules


class Judge:
    """Whether single files below a directory are omitted, for those who have not walked there
    themselves."""

    def __init__(self, root_fd: int, base: str) -> None:
        self._root_fd = root_fd
        self._base = base
        self._known: dict[str, Ignores | None] = {}
        above = chain(root_fd, base)
        self.has_rules = above is not NONE
        self._known[base] = self._with(above, base)

    def ignores(self, path: str) -> bool:
        rules = self._rules(os.path.dirname(path))
        return rules is None or rules.match(path, os.path.basename(path), False)

    def _rules(self, directory: str) -> Ignores | None:
        """The rules in a directory; None when it is omitted as a whole."""
        if directory not in self._known:
            above = self._rules(os.path.dirname(directory))
            is_out = above is None or above.match(directory, os.path.basename(directory), True)
            self._known[directory] = (
                None if above is None or is_out else self._with(above, directory)
            )
        return self._known[directory]

    def _with(self, above: Ignores, directory: str) -> Ignores:
        try:
            fd = open_beneath(self._root_fd, directory or ".", os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return above
        try:
            return above.below(fd, len(directory) + 1 if directory else 0)
        finally:
            os.close(fd)
