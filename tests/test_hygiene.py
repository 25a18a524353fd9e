"""No file of the repository names one machine, one package registry, or work put off; and every
test asserts something.

The needles are assembled from pieces, so that this file passes its own test.
"""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A path that starts at the file system's root, not a part of a longer path or address.
START = r"(?<![\w.~})/])"
HOME = re.compile(
    START
    + "(?:/"
    + "home"
    + r"/\w|/"
    + "root"
    + r"/[\w.]|/"
    + "Users"
    + r"/\w)|[A-Za-z]:\\+"
    + "Users"
)
REGISTRY = re.compile(
    "|".join(
        re.escape(".".join(parts))
        for parts in [
            ("pypi", "org"),
            ("pypi", "python", "org"),
            ("pythonhosted", "org"),
            ("npmjs", "org"),
            ("npmjs", "com"),
            ("yarnpkg", "com"),
        ]
    ),
    re.IGNORECASE,
)
PUT_OFF = re.compile(r"\b(?:" + "TO" + "DO|FIX" + "ME" + r")\b")


def repository_files() -> list[Path]:
    """Tracked files, and new ones that are not ignored: a fault should show before it is
    committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    # safe.directory: a checkout owned by another user is common in CI, and listing its files is
    # harmless.
    command = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted({ROOT / name for name in listing.split("\0") if name})


def findings(needle: re.Pattern[str]) -> list[str]:
    results = []
    for path in repository_files():
        if not path.is_file():  # deleted, but not yet from the index
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:  # not text
            continue
        name = path.relative_to(ROOT).as_posix()
        results += [
            f"{name}:{n}: {match[0]}"
            for n, line in enumerate(lines, 1)
            if (match := needle.search(line))
        ]
    return results


def test_no_file_names_a_home_folder() -> None:
    assert findings(HOME) == []


def test_no_file_names_a_package_registry() -> None:
    assert findings(REGISTRY) == []


def test_no_file_puts_work_off() -> None:
    assert findings(PUT_OFF) == []


@pytest.mark.parametrize(
    ("needle", "text"),
    [
        (HOME, "see /" + "home/ada/notes"),
        (HOME, "'/" + "root/.cache'"),
        (HOME, "C:" + "\\Users\\ada"),
        (REGISTRY, "https://" + "files.pythonhosted" + ".org/x"),
        (PUT_OFF, "# TO" + "DO: later"),
    ],
)
def test_a_needle_finds_what_it_is_for(needle: re.Pattern[str], text: str) -> None:
    assert needle.search(text)


def asserts(test: ast.AST) -> bool:
    """Whether a test says in its own body what must be true, and not only through what it calls."""
    calls = (node.func for node in ast.walk(test) if isinstance(node, ast.Call))
    return any(isinstance(node, ast.Assert) for node in ast.walk(test)) or any(
        isinstance(name, ast.Attribute) and name.attr in ("raises", "warns", "fail")
        for name in calls
    )


def test_every_test_asserts_something() -> None:
    results = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
                "test_"
            ):
                results += (
                    []
                    if asserts(node)
                    else [f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"]
                )
    assert results == []


def test_a_call_of_a_helper_is_no_assertion() -> None:
    assert not asserts(ast.parse("def test_a() -> None:\n    check(1)\n"))
    assert asserts(
        ast.parse("def test_a() -> None:\n    with pytest.raises(ValueError):\n        int('x')\n")
    )
