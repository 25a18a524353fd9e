"""Tests, foreign, generated and other kinds of files, by their paths."""

from __future__ import annotations

import re
from functools import lru_cache
from posixpath import basename, splitext

TEST_DIRS = {
    "test",
    "tests",
    "__tests__",
    "spec",
    "specs",
    "e2e",
    "testdata",
    "test-data",
    "fixtures",
    "__mocks__",
}
FOREIGN_DIRS = {
    "vendor",
    "vendored",
    "third_party",
    "thirdparty",
    "node_modules",
    "site-packages",
    ".venv",
    "venv",
    "bower_components",
    "Pods",
}
MADE_DIRS = {
    "dist",
    "build",
    "target",
    "out",
    "generated",
    "__generated__",
    "gen",
    "coverage",
    "_build",
}
_TEST_FILE = re.compile(
    r"^(?:test_.*\.py|.*_test\.(?:py|go|rs|rb|c|cc|cpp)|conftest\.py|tests?\.(?:py|rs)|.*\.(?:test|spec)\.\w+|"
    r".*(?:Test|Tests|Spec|IT)\.(?:java|kt|cs|php)|.*_spec\.rb|test-.*\.js|.*\.bats)$"
)
_MADE_FILE = re.compile(
    r"(?:\.min\.(?:js|css)|\.pb\.go|_pb2(?:_grpc)?\.pyi?|\.generated\.\w+|_generated\.\w+|\.g\.\w+|\.bundle\.js|\.map|"
    r"_gen\.go|\.gen\.\w+|zz_generated.*)$"
)
_LOCKS = {
    "package-lock.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "Cargo.lock",
    "poetry.lock",
    "uv.lock",
    "go.sum",
}
GENERATED_MARK = (
    r"^(?://|#|/\*+|--|;|<!--)[ \t]*(?:Code generated .*DO NOT EDIT|@generated|AUTO-?GENERATED)"
)


@lru_cache(maxsize=8192)
def is_test(path: str) -> bool:
    *folders, name = path.split("/")
    return any(f in TEST_DIRS for f in folders) or bool(_TEST_FILE.match(name))


@lru_cache(maxsize=8192)
def is_foreign(path: str) -> bool:
    return any(f in FOREIGN_DIRS for f in path.split("/")[:-1])


@lru_cache(maxsize=8192)
def is_made(path: str) -> bool:
    """Whether a name says that a machine has written the file."""
    *folders, name = path.split("/")
    return any(f in MADE_DIRS for f in folders) or name in _LOCKS or bool(_MADE_FILE.search(name))


def is_doc(path: str) -> bool:
    return splitext(path)[1].lower() in (".md", ".rst", ".adoc", ".txt") or basename(
        path
    ).startswith("LICENSE")
