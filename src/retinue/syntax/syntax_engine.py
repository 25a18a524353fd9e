"""Reads a tree: lists its files, uses cached facts, and parses the rest. Files are parsed in
workers; what was found is kept by content."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event

import msgspec

from retinue.syntax.c_preparation import attribute_macros
from retinue.syntax.fact_cache import FactCache, TreeIndex
from retinue.syntax.fact_version import code_version, fact_key
from retinue.syntax.facts import FileFacts
from retinue.syntax.file_scan import FileScan, may_have
from retinue.syntax.roles import (
    MOST_BYTES,
    content_role,
    folder_role,
    given_role,
    linguist,
    manifest_folders,
    place_role,
)
from retinue.syntax.source_languages import language_of
from retinue.syntax.source_tree import PARSED_ROLES, SourceTree, TreeFile
from retinue.syntax.tree_files import FileEntry, TreeFiles
from retinue.syntax.worker import ParseJob, ParseReply
from retinue.syntax.worker_pool import answers

RACY_NS = 2_000_000_000
"""A file that has just changed may change again without its times telling."""
MOST_SECONDS = 300
SMALL_COPY = 200
MOST_TEXTS, MOST_TEXT = 60, 64 << 10
DEEPEST_README = 4
MACRO_BYTES = 100 << 20
"""So much of C is searched for macros that expand to attributes."""
C_FAMILY = ("c", "cpp")
_QUOTED = re.compile(
    r"(?:README|CHANGE|NEWS|HISTORY|Makefile)[^/]*|pyproject\.toml|package\.json|Cargo\.toml|"
    r"go\.mod|setup\.(?:cfg|py)|tox\.ini|[^/]*\.(?:gemspec|csproj)|composer\.json|pom\.xml|"
    r"build\.gradle(?:\.kts)?|CMakeLists\.txt|configure\.ac|meson\.build|Rakefile",
    re.IGNORECASE,
)
_decoder = msgspec.msgpack.Decoder(FileFacts)


@dataclass
class KnownFile:
    """One file on the way to its facts."""

    entry: FileEntry
    role: str = ""
    language: str = ""
    scan: FileScan | None = None
    facts: bytes = b""
    problem: str = ""


@dataclass
class Inventory:
    """The files of a tree with their roles. `macros` are those of its C files."""

    files: dict[str, KnownFile]
    macros: dict[bytes, bool]
    gaps: list[str] = field(default_factory=list)
    fresh: dict[bytes, bytes] = field(default_factory=dict)

    @cached_property
    def has_cpp(self) -> bool:
        return any(language_of(path) == "cpp" for path in self.files)

    def key(self, file: KnownFile) -> bytes:
        assert file.scan is not None
        return fact_key(file.scan.digest, file.language, self.macros)

    def with_word(self, word: bytes) -> list[str]:
        """The paths of files that may have a word, as far as they are searched."""
        return [
            path for path, f in self.files.items() if f.scan is not None and may_have(f.scan, word)
        ]


class SyntaxEngine:
    """`folder` is where facts are kept, None for nowhere."""

    def __init__(self, folder: Path | None = None, n_workers: int = 0) -> None:
        self._cache = FactCache(folder)
        self._n_workers = n_workers

    def close(self) -> None:
        self._cache.close()

    def read_tree(self, files: TreeFiles, stop: Event | None = None) -> SourceTree:
        """The whole tree with the facts of source, tests and what is aside."""
        inventory = self.inventory(files, lambda path, data: True, stop)
        return self.tree(files, inventory, inventory.files, stop)

    def inventory(
        self,
        files: TreeFiles,
        wants: Callable[[str, bytes], bool] = lambda path, data: False,
        stop: Event | None = None,
    ) -> Inventory:
        """Every file with its role. Of files that are read on the way, those that `wants` names are
        parsed immediately."""
        stop = stop or Event()
        began = time.time_ns()
        entries, why = files.entries()
        index = self._cache.index(files.key, code_version())
        result = Inventory({e.path: KnownFile(e) for e in entries}, index.macros)
        if why:
            result.gaps.append(f"not all files were seen: {why}")
        changed = self._known(result, index)
        if any(language_of(p) in C_FAMILY for p in changed):
            result.macros = _macros(files, result)
        self._scan(files, result, changed, wants, stop)
        self._assign(files, result)
        if changed or result.fresh or set(index.files) - set(result.files):
            new_index = TreeIndex(index.version, _rows(result, began), result.macros)
            self._cache.keep(files.key, new_index, result.fresh)
        return result

    def _known(self, inventory: Inventory, index: TreeIndex) -> list[str]:
        """Roles that a path gives, scans that are known; the paths of those to be read, the
        largest first."""
        manifests = manifest_folders(inventory.files)
        changed: list[str] = []
        for path, file in inventory.files.items():
            entry = file.entry
            file.role = _entry_role(entry) or folder_role(path, manifests)
            if file.role:
                continue
            row = index.files.get(path)
            if row is not None and row[0] == entry.stamp:
                file.scan = row[1]
            else:
                changed.append(path)
        return sorted(changed, key=lambda p: (-inventory.files[p].entry.size, p))

    def _scan(
        self,
        files: TreeFiles,
        inventory: Inventory,
        changed: list[str],
        wants: Callable[[str, bytes], bool],
        stop: Event,
    ) -> None:
        def source(path: str) -> Callable[[], ParseJob | None]:
            return lambda: self._job(files, inventory, path, wants)

        jobs = [source(path) for path in changed]
        until = time.monotonic() + MOST_SECONDS
        for n_read, (number, reply) in enumerate(
            answers(jobs, len(jobs), stop, self._n_workers), 1
        ):
            file = inventory.files[changed[number]]
            file.scan = reply.scan or file.scan
            self._take(inventory, file, reply)
            if time.monotonic() > until and n_read < len(jobs):
                inventory.gaps.append(
                    f"not all files were read: it took longer than {MOST_SECONDS} s"
                )
                break

    def _job(
        self,
        files: TreeFiles,
        inventory: Inventory,
        path: str,
        wants: Callable[[str, bytes], bool],
    ) -> ParseJob | None:
        try:
            data = files.read(path, MOST_BYTES)
        except OSError as error:
            inventory.files[path].role = "not a file"
            inventory.files[path].problem = error.strerror or str(error)
            return None
        if len(data) > MOST_BYTES:
            inventory.files[path].role = "too large"
            return None
        language = language_of(path)
        is_wanted = bool(language) and not content_role(path, data) and wants(path, data)
        return ParseJob(
            path,
            language if is_wanted else "",
            data,
            inventory.macros if language in C_FAMILY else None,
            inventory.has_cpp,
        )

    def _take(self, inventory: Inventory, file: KnownFile, reply: ParseReply) -> None:
        file.problem = reply.problem
        if reply.facts and reply.scan is not None:
            file.facts, file.scan = reply.facts, reply.scan
            key = fact_key(reply.scan.digest, reply.language, inventory.macros)
            inventory.fresh[key] = reply.facts

    def _assign(self, files: TreeFiles, inventory: Inventory) -> None:
        """What only all files together can say: copies, headers of C++, attributes of git."""
        rules = linguist(_text(files, ".gitattributes", inventory))
        first: dict[bytes, str] = {}
        for path, file in inventory.files.items():
            if file.scan is None:
                file.role = file.role or "not read"
                continue
            role, denied = given_role(path, rules) if rules else ("", frozenset())
            content = "" if file.scan.role in denied else file.scan.role
            language = language_of(path)
            if language == "c" and inventory.has_cpp and file.scan.looks_cpp:
                language = "cpp"
            file.language = language
            if role or (content and (language or content == "binary")):
                file.role = role or content
            elif not language:
                file.role = "no grammar"
            elif file.entry.size > SMALL_COPY and file.scan.digest in first:
                file.role = "copy"
            else:
                file.role = place_role(path)
                first.setdefault(file.scan.digest, path)

    def tree(
        self,
        files: TreeFiles,
        inventory: Inventory,
        paths: Iterable[str],
        stop: Event | None = None,
    ) -> SourceTree:
        """The tree with the facts of those files."""
        paths_to_parse = [p for p in paths if inventory.files[p].role in PARSED_ROLES]
        self._fill(files, inventory, paths_to_parse, stop or Event())
        out: dict[str, TreeFile] = {}
        choice = set(paths_to_parse)
        for path, file in inventory.files.items():
            facts = _decoded(file.facts) if path in choice and file.facts else None
            out[path] = TreeFile(
                path=path,
                role=file.role,
                language=file.language,
                size=file.entry.size,
                lines=file.scan.lines if file.scan is not None else 0,
                facts=facts,
                problem=file.problem,
            )
        return SourceTree(out, _texts(files, inventory), tuple(inventory.gaps))

    def _fill(self, files: TreeFiles, inventory: Inventory, paths: list[str], stop: Event) -> None:
        """Facts from the cache, and those that are not there from the files."""
        missing = [
            p for p in paths if not inventory.files[p].facts and not inventory.files[p].problem
        ]
        keys = {p: inventory.key(inventory.files[p]) for p in missing}
        facts = self._cache.facts(keys.values())
        for path, key in keys.items():
            inventory.files[path].facts = facts.get(key, b"")
        rest = [p for p in missing if _decoded(inventory.files[p].facts) is None]
        rest.sort(key=lambda p: (-inventory.files[p].entry.size, p))
        inventory.fresh = {}
        self._scan(files, inventory, rest, lambda path, data: True, stop)
        self._cache.keep(files.key, None, inventory.fresh)


def _entry_role(entry: FileEntry) -> str:
    if entry.kind != "file":
        return "link" if entry.kind == "link" else "not a file"
    return "too large" if entry.size > MOST_BYTES else ""


def _decoded(data: bytes) -> FileFacts | None:
    try:
        return _decoder.decode(data) if data else None
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def _rows(
    inventory: Inventory, began: int
) -> dict[str, tuple[tuple[int, int, int, int], FileScan]]:
    return {
        path: (file.entry.stamp, file.scan)
        for path, file in inventory.files.items()
        if file.scan is not None and max(file.entry.stamp[1:3]) < began - RACY_NS
    }


def _macros(files: TreeFiles, inventory: Inventory) -> dict[bytes, bool]:
    def contents() -> Iterable[bytes]:
        room = MACRO_BYTES
        for path, file in inventory.files.items():
            if language_of(path) in C_FAMILY and not file.role and room > 0:
                room -= file.entry.size
                try:
                    yield files.read(path, MOST_BYTES)
                except OSError:
                    continue

    return attribute_macros(contents())


def _text(files: TreeFiles, path: str, inventory: Inventory) -> str:
    if path not in inventory.files or inventory.files[path].scan is None:
        return ""
    try:
        return files.read(path, MOST_TEXT)[:MOST_TEXT].decode("utf-8", "replace")
    except OSError:
        return ""


def _is_near(path: str) -> bool:
    """A README speaks for its folder also further down."""
    depth = DEEPEST_README if path.rpartition("/")[2].lower().startswith("readme") else 2
    return path.count("/") <= depth


def _texts(files: TreeFiles, inventory: Inventory) -> dict[str, str]:
    """Small files that reports quote, from the first levels of the tree."""
    names = [
        p
        for p, f in inventory.files.items()
        if f.scan is not None and _QUOTED.fullmatch(p.rpartition("/")[2]) and _is_near(p)
    ]
    names.sort(key=lambda p: (p.count("/"), p))
    return {p: _text(files, p, inventory) for p in names[:MOST_TEXTS]}
