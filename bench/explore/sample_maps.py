"""Numbers of the sample maps, computed again from the same trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from posixpath import dirname

from retinue.syntax.case_rules import case_lines
from retinue.syntax.facts import TYPE_KINDS
from retinue.syntax.overview.survey import map_answer
from retinue.syntax.resolution import FileResolver
from retinue.syntax.source_tree import SourceTree

EXPECTED: dict[str, dict[str, object]] = {
    "flask": {
        "source files": 24, "lines": 9199, "test files": 41, "files with errors": 0,
        "python class": 47, "python method": 271, "python function": 96,
        "imports of src/flask/globals.py": 31, "imports of src/flask/helpers.py": 22,
        "imports of src/flask/signals.py": 20, "imports of src/flask/wrappers.py": 12,
        "src/flask -> src/flask/sansio": 11, "src/flask/sansio -> src/flask": 15,
        "src/flask -> src/flask/json": 4, "src/flask/json -> src/flask": 2,
        "src/flask/sansio -> src/flask/json": 2, "src/flask/json -> src/flask/sansio": 1,
        "by name: Flask": 7, "by name: Request": 6, "by name: Response": 6,
        "by name: SessionMixin": 3, "by name: App": 7, "by name: Scaffold": 4,
        "tests in tests/test_basic.py": 88, "tests in tests/test_blueprints.py": 47, "tests": 371,
    },
    "tmux": {
        "source files": 186, "lines": 81782, "files with errors": 23, "test files": 1,
        "c function": 2120, "c struct": 149, "c enum": 34, "c type": 31, "c macro": 667,
        "generated": 1, "patched copies": 7, "packaging": 22, "no grammar": 20,
        "imports of tmux.h": 135, "as a type: client": 67, "as a type: session": 59,
        "as a type: window_pane": 56, "as a type: args": 71, "as a type: cmdq_item": 77,
        "cmd* => other": 1161, "cmd* => server*": 161, "window* => screen*": 149,
        "other => screen*": 228, "server* => cmd*": 27, "layout* => window*": 12,
        "compat/ => other": 24, "screen* => tty*": 48, "tty* => tmux*": 2, "osdep* => compat/": 12,
    },
    "fzf": {
        "source files": 42, "lines": 14075, "test files": 20, "no grammar": 35,
        "packaging": 14, "patched copies": 4, "files with errors": 1,
        "go struct": 52, "go interface": 2, "go type": 29, "go function": 210, "go method": 307,
        "bash function": 21, "as a type: Chunk": 5, "as a type: Item": 5,
        "as a type: ColorTheme": 7, "as a type: Chars": 4,
        "tests": 269, "tests in src/options_test.go": 18,
        "src/ => src/util/": 10, "src/ => src/tui/": 4, "src/ => src/algo/": 2,
        "src/tui/ => src/util/": 2, "src/algo/ => src/util/": 1, "main.go => src/": 1,
        "main.go => src/protector/": 1,
    },
    "rust-ripgrep": {
        "rust files": 10, "rust lines": 6682, "test files": 10, "packaging": 19,
        "patched copies": 8, "rust struct": 16, "rust enum": 7, "rust type": 2, "rust macro": 4,
        "rust function and method": 319, "uses of rgtest": 272, "as a type: Subject": 2,
        "crates/core/args.rs => crates/core/app.rs": 1,
        "crates/core/search.rs => crates/core/subject.rs": 1,
        "crates/core/main.rs => crates/core/subject.rs": 1,
    },
    "express": {
        "source files": 7, "lines": 2766, "javascript function and method": 92,
        "set as a property": 56, "imports of lib/utils.js": 7, "imports of lib/view.js": 1,
        "lib/application.js => lib/utils.js": 4, "lib/response.js => lib/utils.js": 3,
        "lib/application.js => lib/view.js": 1, "index.js => lib/express.js": 1,
    },
}  # fmt: skip
DIFFERENT = {
    "flask tests": "the sample counts the fixture `test_apps` of tests/conftest.py; by the rule "
    "(test_*.py, *_test.py) it is none",
}


def numbers(tree: SourceTree) -> Callable[[str], object]:
    """What this tree says, by the names that are used above."""
    source = list(tree.source.values())
    counts: Counter[str] = Counter(tree.role_counts)
    counts["source files"], counts["lines"] = len(source), sum(f.lines for f in source)
    counts["test files"] = tree.role_counts.get("test", 0)
    for file in source:
        counts[f"{file.language} files"] += 1
        counts[f"{file.language} lines"] += file.lines
        assert file.facts is not None
        counts["files with errors"] += file.facts.errors > 0
        for one in file.facts.definitions:
            counts[f"{file.language} {one.kind}"] += 1
            if one.kind in ("function", "method"):
                counts[f"{file.language} function and method"] += 1
        for name in {d.name for d in file.facts.definitions if d.kind in TYPE_KINDS}:
            others = [f for f in source if f.path != file.path and f.facts is not None]
            counts[f"as a type: {name}"] += sum(name in f.facts.types for f in others if f.facts)
    counts["set as a property"] = counts["javascript method"]
    _imports(tree, counts)
    for file in tree.files.values():
        if file.role != "aside" and (lines := case_lines(file)):
            counts[f"tests in {file.path}"] = len(lines)
            counts["tests"] += len(lines)
    for facts in tree.parsed.values():
        for call in facts.calls:
            counts[f"uses of {call.name}"] += 1
    for edge in map_answer(tree).edges:
        counts[f"{edge.user} => {edge.used}"] = edge.n
    return lambda name: counts[name]


def _imports(tree: SourceTree, counts: Counter[str]) -> None:
    resolver = FileResolver(tree)
    by_name: dict[str, set[str]] = {}
    for path, file in tree.source.items():
        edges: set[tuple[int, str]] = set()
        for site in file.facts.imports if file.facts is not None else ():
            for target in resolver.files(path, site):
                counts[f"imports of {target}"] += 1
                edges.add((site.line, dirname(target)))
                facts = tree.files[target].facts
                for one in facts.definitions if facts is not None else ():
                    if one.kind in TYPE_KINDS and one.name in site.names:
                        by_name.setdefault(one.name, set()).add(path)
        for _, folder in edges:
            if folder != dirname(path):
                counts[f"{dirname(path)} -> {folder}"] += 1
    for name, paths in by_name.items():
        counts[f"by name: {name}"] = len(paths)


def compare(name: str, tree: SourceTree) -> dict[str, object]:
    """The numbers that differ, with what was expected."""
    result = numbers(tree)
    wrong = {
        key: {"sample": value, "found": result(key), "why": DIFFERENT.get(f"{name} {key}", "")}
        for key, value in EXPECTED[name].items()
        if result(key) != value
    }
    return {"numbers": len(EXPECTED[name]), "different": wrong}
