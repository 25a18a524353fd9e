"""Texts for people and models are plain, modern English: what a machine can find of that.

Every string literal of the package that reads like a text is searched for words that the project
no longer uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "retinue"
PACKAGES = [p for p in SOURCE.iterdir() if p.name[0] != "_" and (p.is_dir() or p.suffix == ".py")]
BETTER = {
    r"\b(?:no|any|some|every)body\b": "say run, agent, user or process; or `no one`",
    r"\bwho(?:so)?ever\b": "name the agent or the user",
    r"(?<!there )\bis no (?!longer\b)[a-z]": "`is not a ...`",
    r"\bmay stand\b|\bstands? (?:twice|there|in the)\b": "`can be set`, `is`",
    r"\bmend(?:s|ed)?\b": "fix",
    r"\bone hopes\b": "say what is so",
    r"\bhand(?:s|ed|ing)? in\b": "submit",
    r"\bgo(?:es|ing)? on\b": "continue",
    r"\btaken? up\b": "resume",
    r"\b(?:broken|breaks?) off\b": "interrupt",
    r"\bat once\b": "now, immediately, or at the same time",
    r"\bany more\b": "no longer",
    r"\b(?:lend|lent)\b": "give",
    r"\bside by side\b": "in parallel",
    r"\bleft out\b|\bleave (?:it )?out\b": "omit, ignore, or a default",
    r"\bthere is: ": "`Known: `",
    r"\bsee to\b": "check",
    r"\bas it is built in\b|\bis left as it is\b": "default; was not changed",
    r"\bhelpers?\b": "sub-agent",
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The string literals of a module that are not docstrings, with their lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) not in docstrings and " " in node.value.strip():
            yield node.lineno, node.value


@pytest.mark.parametrize("package", sorted(p.name for p in PACKAGES))
def test_no_text_uses_a_word_that_has_a_plain_one(package: str) -> None:
    path = SOURCE / package
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    wrong = [
        f"{file.relative_to(SOURCE)}:{line}: {text!r}: {better}"
        for file in files
        for line, text in texts(file)
        for pattern, better in BETTER.items()
        if re.search(pattern, text)
    ]
    assert not wrong, "\n".join(wrong)
