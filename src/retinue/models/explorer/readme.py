"""What a project's readme says first."""

from __future__ import annotations

import re

from retinue.formats.safe_text import one_line
from retinue.models.explorer.manifests import Fact, numbered

READMES = ("README.md", "README.rst", "README.txt", "README", "readme.md", "Readme.md")
_SKIP = re.compile(
    r"^\s*(?:[#>|=~]|[*+-]\s|\d+\.\s|<|\[!\[|!\[|\[[^\]]*\]\([^)]*\)\s*(?:[|·•]\s*\[[^\]]*\]\([^)]*\)\s*)*$|"
    r"\.\. |:\w+:|---|```|(?:news|update|latest|announcement|warning|note|new|breaking)\b[:!\s]|"
    r"\[?\(?\d{4}[-/.]\d{1,2}|[^\w\s\"'`*_(\[])",
    re.IGNORECASE,
)
_NEWS = re.compile(
    r"^\s*(?:#+\s*)?(?:[^\w\s]+\s*)?(?:news|what'?s new|changelog|announcements?|updates?)\b",
    re.IGNORECASE,
)


def read_readme(path: str, text: str) -> tuple[Fact | None, Fact | None]:
    """The title and the first real paragraph: no badges, news, lists, tables, code or markup."""
    title: Fact | None = None
    lines = numbered(text)
    fenced = news = False
    for i, (n, line) in enumerate(lines):
        bare = line.strip()
        if bare.startswith("```"):
            fenced = not fenced
            continue
        if fenced or not bare:
            continue
        if found := re.match(r"^#+\s+(.*)$", bare):
            news = bool(_NEWS.match(bare))
            if title is None and bare.startswith("# ") and not news:
                title = (
                    one_line(re.sub(r"!?\[([^\]]*)\]\([^)]*\)|<[^>]*>", r"\1", found[1]), 80),
                    path,
                    n,
                )
            continue
        if i + 1 < len(lines) and re.match(r"^(?:={3,}|-{3,})\s*$", lines[i + 1][1]):
            title = title or (one_line(bare, 80), path, n)
            continue
        if news or _SKIP.match(bare) or len(re.sub(r"[^A-Za-z\u00c0-\uffff]", "", bare)) < 20:
            continue
        paragraph = [bare]
        for _, more in lines[i + 1 :]:
            if not more.strip() or re.match(r"^\s*(?:[#>|*-]|```|<|!\[)", more):
                break
            paragraph.append(more.strip())
        return title, (one_line(_plain(" ".join(paragraph)), 320), path, n)
    return title, None


def _plain(text: str) -> str:
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"(\*\*|__|<[^>]+>)", "", text)
