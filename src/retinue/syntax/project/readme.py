"""The introduction of a README, and the commands under headings about building or testing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from posixpath import basename, dirname

from retinue.syntax.project.places import Place, Quote, flat, is_licence
from retinue.syntax.project.project_facts import ProjectCommand

_LINK = r"!?\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])?"
_NO_TEXT = re.compile(
    rf"^\s*(?:#|>|\||=|~|<|!\[|\.\. |:\w[\w-]*:|---|\*\*\*|```|[*+-]\s|\d+[.)]\s|\[[^\]]+\]:|"
    rf"(?:{_LINK}[\s|·•,/-]*)+$)"
)
_UNDERLINE = re.compile(r"^(?:={3,}|-{3,}|~{3,}|\^{3,})\s*$")
_NEWS = re.compile(r"\b(?:news|what'?s new|changelog|announcements?|sponsors?)\b", re.IGNORECASE)
_HEADING = re.compile(r"^(?:#{1,6}\s+|\*\s+)(.+?)\s*#*$")
_WANTED = re.compile(r"\b(?:build|install|test|compil|develop|contribut)", re.IGNORECASE)
_TOOL = re.compile(
    r"^(?:sudo )?(?:(?:\./)?configure\b|make\b|cmake\b|meson\b|ninja\b|cargo (?:build|test|run)\b|"
    r"go (?:build|test|install \.)|npm (?:run|test|ci|start|install$)|yarn (?:build|test)\b|"
    r"pnpm (?:build|test|run)\b|pytest\b|tox\b|nox\b|python3? -m (?:pytest|build|unittest)|"
    r"pip install (?:-e )?['\"]?\.|uv (?:run|sync)|poetry (?:install|run)|(?:\./)?mvnw? |"
    r"(?:\./)?gradlew? |bundle exec|rake\b|composer (?:install|test)|dotnet (?:build|test|run)|"
    r"bazel (?:build|test)|just\b|tox\b)"
)
_WELCOME = re.compile(r"(?:welcome|hi|hello|thank you|thanks)\b[^.]{0,60}!?$", re.IGNORECASE)
LEAST_LETTERS, LEAST_FIRST = 20, 5
"""Of a paragraph that says what a project is. The first one may be as short as "A tiny parser.", if
it is not a row of links."""
_LINKS = re.compile(r"\||\]\(|\]\[|https?:|`__?(?:\s|$)")


def readme_of(paths: Mapping[str, str], folder: str = "") -> str:
    """The README of a folder, or ""."""
    names = [p for p in paths if dirname(p) == folder and basename(p).lower().startswith("readme")]
    order = ("readme.md", "readme.rst", "readme", "readme.txt")
    readmes = [p for p in names if basename(p).lower() in order]
    return min(readmes, key=lambda p: (order.index(basename(p).lower()), p), default="")


def first_paragraph(path: str, text: str) -> Quote | None:
    """The first paragraph that is text: no badge, image, heading, list or news, and no licence."""
    lines = text.split("\n")
    is_fenced = is_news = is_later = False
    n = -1
    while n + 1 < len(lines):
        n += 1
        line = lines[n]
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
            continue
        if is_fenced or not line.strip():
            continue
        if n + 1 < len(lines) and _UNDERLINE.match(lines[n + 1]):
            is_news = bool(_NEWS.search(line))
            continue
        if line.startswith("#"):
            is_news = bool(_NEWS.search(line))
        if is_news or line.startswith(("    ", "\t")) or _NO_TEXT.match(line):
            continue
        start = n
        while n + 1 < len(lines) and lines[n + 1].strip() and not _starts_other(lines[n + 1]):
            n += 1
        text_block = " ".join(lines[start : n + 1])
        paragraph = plain(text_block)
        least = LEAST_LETTERS if is_later or _LINKS.search(text_block) else LEAST_FIRST
        if _is_text(paragraph, least) and not _WELCOME.match(paragraph):
            return Quote(paragraph, Place(path, start + 1))
        is_later = True
    return None


def _starts_other(line: str) -> bool:
    return re.match(r"^\s*(?:#|\||```|<|!\[|>)", line) is not None


def _is_text(paragraph: str, least: int) -> bool:
    letters = sum(c.isalpha() for c in paragraph)
    if paragraph.endswith(":"):  # it leads to what follows
        least = LEAST_LETTERS
    return letters >= least and " " in paragraph and not is_licence(paragraph)


def plain(text: str) -> str:
    """Markup of links, images and emphasis taken off; the words stay."""
    text = re.sub(r"!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])?", "", text)
    text = re.sub(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r"`([^`<]+?)\s*<[^>]*>`_{1,2}|\[([^\]]*)\]", r"\1\2", text)
    return flat(re.sub(r"\*\*|__|<[^>]+>", "", text))


def commands(path: str, text: str) -> list[ProjectCommand]:
    """Commands in code blocks under a heading about building or testing, the first of a kind."""
    out: dict[str, ProjectCommand] = {}
    for n, line in _code_lines(text):
        words = re.sub(r"^(?:\$|%|>)\s+", "", line.strip())
        if _TOOL.match(words) and len(words) <= 60:
            kind = " ".join(words.removeprefix("sudo ").split()[:2])
            out.setdefault(kind, ProjectCommand(flat(words), Place(path, n)))
    return list(out.values())


def _code_lines(text: str) -> Iterator[tuple[int, str]]:
    lines = text.split("\n")
    is_fenced = is_wanted = False
    for n, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
            continue
        heading = _HEADING.match(line) if not is_fenced else None
        below = lines[n + 1] if n + 1 < len(lines) else ""
        if heading or (_UNDERLINE.match(below) and line.strip() and not is_fenced):
            is_wanted = bool(_WANTED.search(heading[1] if heading else line))
            continue
        if is_wanted and (is_fenced or line.startswith(("    ", "\t"))) and line.strip():
            yield n + 1, line
