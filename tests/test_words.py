"""Texts for people and models are plain, modern English: what a machine can find of that.

Every string literal, docstring and comment of the package is searched for words that the project no
longer uses: old phrases in all of them, and old names in docstrings and comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
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

OLD_NAMES = {
    r"\bcrews?\b": "registry, or reachable agents",
    r"\bdesks?\b|\brosters?\b|\bkin\b": "step context, tree, children",
    r"\bdoors?\b": "client, command or API",
    r"\bseat(?:s|ed)?\b": "slot of a lane",
    r"\bshel(?:f|ves)\b|\bbooks?\b": "listing, record, store",
    r"\bkits?\b": "built-in tools, `retinue.testing`",
    r"\borders\b(?! of\b)|\b(?:an|takes the) order\b": "request, or actions",
    r"\borphans?\b|\bbonds?\b": "`children_on_end`, `on_parent_end`",
    r"\bbare\b": "without a sandbox, or alone",
    r"\bwish(?:es)?\b": "request, setting",
    r"\btold\b": "gets, reads, is notified; reported, shown, known, set",
    r"\bhears?\b|\bheard\b": "reads, gets, knows",
    r"\bstands?\b|\bstood\b": "is, comes, means, queues",
    r"\bfor ever\b": "permanently, without end",
}
"""What parts of the code and their acts were called. A name in backticks is what it is in code."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The string literals of a module that are not docstrings, with their lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) not in docstrings and " " in node.value.strip():
            yield node.lineno, node.value


def explanations(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments of a module without the code in them, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, prose(str(node.value.value))
    block, last = "", 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] > last + 1:
                yield last, prose(block)
                block = ""
            block, last = f"{block} {token.string.lstrip('#')}", token.start[0]
    if block:
        yield last, prose(block)


def prose(text: str) -> str:
    return " ".join(re.sub(r"`[^`]*`", "`code`", text).split())


def old_words(source: str) -> list[tuple[int, str, str]]:
    return [
        (line, match[0], better)
        for line, text in explanations(source)
        for pattern, better in {**BETTER, **OLD_NAMES}.items()
        for match in re.finditer(pattern, text, re.IGNORECASE)
    ]


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


@pytest.mark.parametrize("package", sorted(p.name for p in PACKAGES))
def test_no_docstring_or_comment_uses_an_old_word(package: str) -> None:
    path = SOURCE / package
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    wrong = [
        f"{file.relative_to(SOURCE)}:{line}: {word!r}: {better}"
        for file in files
        for line, word, better in old_words(file.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_check_reads_docstrings_and_comments_and_no_code() -> None:
    source = '''
def f(told):
    """Nobody is told
    at all. `orphans` is a name."""
    # The crew sits at
    # its table.
    return "kept in a shelf"  # a door
'''
    assert [word for _, word, _ in old_words(source)] == ["Nobody", "told", "crew", "door"]
    assert old_words("# It goes\n# on.") == [(2, "goes on", "continue")]
