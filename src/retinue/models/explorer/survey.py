"""The ground of every job: the tree of files, the manifests, the README; and the orders for the
parts of a map."""

from __future__ import annotations

from dataclasses import dataclass, field
from posixpath import basename, dirname
from typing import Any

from retinue.models.explorer.delegation import AreaTask
from retinue.models.explorer.file_kinds import (
    FOREIGN_DIRS,
    GENERATED_MARK,
    is_foreign,
    is_made,
    is_test,
)
from retinue.models.explorer.file_tree import Area, FileTree, read_listing
from retinue.models.explorer.known_answers import KnownAnswers
from retinue.models.explorer.languages import BY_KEY, language_of
from retinue.models.explorer.manifests import (
    MAKEFILES,
    NAMES,
    Fact,
    Manifest,
    read_manifest,
    targets,
)
from retinue.models.explorer.matches import Hit, is_before, read_hits, read_paths, search
from retinue.models.explorer.readme import READMES, read_readme
from retinue.models.explorer.report_text import kib, plural

DEPTH, ENTRIES, MOST_FOLDERS, MOST_SKIPPED = 24, 20_000, 60, 400
MAIN = (
    r"^func main\(\)|^(?:pub )?(?:async )?fn main\(|^if __name__ == ['\"]__main__['\"]|"
    r"^#!.*\b(?:python|node|bash|sh|ruby)\b|"
    r"public static void main\(|^int main\("
)
TEST_GLOBS = {
    "py": ("test_*.py", "*_test.py"),
    "go": ("*_test.go",),
    "ts": ("*.{test,spec}.*",),
    "js": ("*.{test,spec}.*",),
    "rs": (),
    "java": ("*Test.java",),
    "rb": ("*_spec.rb",),
}


@dataclass
class Survey:
    tree: FileTree
    root: str = ""
    manifests: list[Manifest] = field(default_factory=list)
    title: Fact | None = None
    intro: Fact | None = None
    targets: list[Fact] = field(default_factory=list)
    mains: list[Hit] = field(default_factory=list)

    @property
    def crates(self) -> dict[str, str]:
        return {
            m.crate: m.folder for m in self.manifests if m.crate and basename(m.path) != "go.mod"
        }

    @property
    def go(self) -> dict[str, str]:
        return {
            m.crate: m.folder for m in self.manifests if m.crate and basename(m.path) == "go.mod"
        }


def listed(book: KnownAnswers, root: str = "") -> FileTree | None:
    """All files below a folder; None while that is only being asked for, or cannot be had."""
    path = root or "."
    got = book.first(
        ("list", {"path": path, "depth": DEPTH, "limit": ENTRIES}),
        ("list", {"path": path, "depth": 8}),
        ("list", {"path": path}),
        ("find", {"pattern": "**/*", "path": path}),
        *([] if root else [("git", {"args": ["ls-files"]})]),
    )
    got = book.whole(got)
    if got is None or book.pending:
        return None
    if got.error:
        book.gap(f"the files could not be listed: {got.text.strip()[:160]}")
        return None
    files, folders = read_listing(got.text)
    if not files and not folders:
        files = {p: 0 for p in read_paths(got.text) if not p.endswith("/") and " " not in p}
    is_whole = not got.cut or _complete(book, path, files)
    return None if book.pending else FileTree(files, is_whole=is_whole)


def _complete(book: KnownAnswers, path: str, files: dict[str, int], levels: int = 4) -> bool:
    """A listing that was cut goes on in those folders that it did not reach: it is sorted."""
    shown = list(files)
    last = shown[-1] if shown and shown == sorted(shown) else ""
    top = book.ask("list", path=path, depth=1)
    if top is None or top.error:
        return False
    here, folders = read_listing(top.text)
    files.update(here)
    rest = [f for f in folders if not is_before(f, last) and not is_foreign(f"{f}/x")]
    whole = not top.cut and len(rest) <= MOST_FOLDERS
    for folder in rest[:MOST_FOLDERS]:
        got = book.ask("list", path=folder, depth=DEPTH, limit=ENTRIES)
        if got is None or got.error:
            whole = False
            continue
        below = read_listing(got.text)[0]
        if got.cut:
            whole = levels > 0 and _complete(book, folder, below, levels - 1) and whole
        files.update(below)
    return whole


def survey(book: KnownAnswers, root: str = "") -> Survey | None:
    """The tree and what it says of itself. None while something is only being asked for; then look
    at `book`."""
    tree = listed(book, root)
    marked = search(book, GENERATED_MARK, root, mode="files")
    if tree is None or book.pending:
        return None
    if marked is not None and not marked.error:
        tree = FileTree(
            tree.files,
            frozenset(p for p in read_paths(marked.text) if p in tree.files),
            tree.is_whole,
        )
    ground = Survey(tree, root)
    own = sorted(
        (p for p in tree.files if not is_test(p) and not is_foreign(p)),
        key=lambda p: (p.count("/"), p),
    )
    base = root.count("/") + 1 if root else 0
    near = [p for p in own if p.count("/") <= base + 2]
    manifests = [p for p in near if basename(p) in NAMES][:8]
    texts = {p: book.whole(book.ask("read", path=p, limit=400)) for p in manifests}
    readmes = [p for p in near if basename(p) in READMES and dirname(p) == root]
    intro = book.ask("read", path=readmes[0], limit=120) if readmes else None
    make = next((p for p in near if basename(p) in MAKEFILES and dirname(p) == root), None)
    rules = book.ask("read", path=make, limit=400) if make else None
    mains = search(book, MAIN, root) if any(language_of(p) for p in tree.source) else None
    if book.pending:
        return None
    for path, got in texts.items():
        found = read_manifest(path, got.text) if got is not None and not got.error else None
        if found is not None:
            ground.manifests.append(found)
    if intro is not None and not intro.error:
        ground.title, ground.intro = read_readme(readmes[0], intro.text)
    if make and rules is not None and not rules.error:
        ground.targets = targets(make, rules.text)
    if mains is not None and not mains.error:
        source = set(tree.source)
        ground.mains = [h for h in read_hits(mains.text) if h.path in source]
    return ground


# the parts of a map


def area_part(ground: Survey, area: Area) -> AreaTask:
    tree = ground.tree
    langs = sorted({x.key for f in area.files if (x := language_of(f))})
    order: dict[str, Any] = {
        "part": "area",
        "name": area.name,
        **where(tree, area),
        "langs": langs,
        "tops": tree.tops if "py" in langs else [],
        "heads": heads(tree, area),
    }
    n, size = len(area.files), kib(area.bytes)
    return AreaTask(
        area.name or "(root)",
        f"Explore the area {area.title} ({plural(n, 'file')}, {size}).",
        order,
    )


def where(tree: FileTree, area: Area) -> dict[str, list[str]]:
    """The places of an area for an order, and the files in them that were found to be generated."""
    homes = [f"{f}/" if f else "" for f in (*area.folders, *area.alone)]
    return {
        "folders": list(area.folders),
        "alone": list(area.alone),
        "without": list(area.without),
        "apart": list(area.apart),
        "skip": sorted(f for f in tree.made if any(f.startswith(h) for h in homes))[:MOST_SKIPPED],
    }


def heads(tree: FileTree, area: Area) -> list[str]:
    """The files of an area that are likely to say what it is."""
    homes = [*area.folders, *area.alone]
    known = set(tree.files)
    biggest = sorted(area.files, key=lambda f: (-tree.files[f], f))
    main = max(
        homes,
        key=lambda h: (tree.size(f for f in area.files if f.startswith(f"{h}/") or not h), h),
        default="",
    )
    named = [f"{main}/{n}" if main else n for n in READMES if main]
    for language in BY_KEY.values():
        named += [f"{main}/{n}" if main else n for n in language.heads]
    named += [f"{main}.rs"] if main else []
    out = [p for p in named if p in known and not is_made(p) and tree.files[p] > 0]
    return [*out[:2], *(b for b in biggest if b not in out)][:3]


def tests_part(ground: Survey) -> AreaTask | None:
    tests = ground.tree.tests
    if not tests:
        return None
    langs = sorted({x.key for f in tests if (x := language_of(f))})
    folders = sorted({_test_root(f) for f in tests} - {""})
    folders = [f for f in folders if not any(f.startswith(f"{o}/") for o in folders if o != f)]
    strays = [f for f in tests if not any(f.startswith(f"{d}/") for d in folders)]
    globs = sorted({g for f in strays if (x := language_of(f)) for g in TEST_GLOBS.get(x.key, ())})
    order: dict[str, Any] = {
        "part": "tests",
        "name": "tests",
        "folders": folders[:10],
        "files": strays if not globs else [],
        "without": sorted({_foreign_root(f) for f in ground.tree.foreign})[:10],
        "langs": langs,
        "tops": ground.tree.tops if "py" in langs else [],
        "globs": globs,
    }
    return AreaTask(
        "tests", f"Find out what the tests cover ({plural(len(tests), 'test file')}).", order
    )


def _test_root(path: str) -> str:
    """The outermost folder of tests around a file, "" when there is none."""
    parts = path.split("/")[:-1]
    for n in range(len(parts)):
        if is_test("/".join([*parts[: n + 1], "x"])):
            return "/".join(parts[: n + 1])
    return ""


def _foreign_root(path: str) -> str:
    parts = path.split("/")
    return next(("/".join(parts[: n + 1]) for n, p in enumerate(parts) if p in FOREIGN_DIRS), path)


def history_part() -> AreaTask:
    return AreaTask(
        "history",
        "Read the history: which files change most.",
        {"part": "history", "name": "history"},
    )
