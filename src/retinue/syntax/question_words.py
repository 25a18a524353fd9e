"""Finds identifiers and words for ranking in a question in plain English."""

from __future__ import annotations

import re
from dataclasses import dataclass

from retinue.syntax.source_languages import language_of

_QUOTED = re.compile(r"`([^`\s]{1,200})`")
_NAME = re.compile(
    r"(?<![\w$.:])(?:[A-Za-z_$][\w$]*(?:(?:\.|::|#)[A-Za-z_~$][\w$]*)*)(?:\(\))?(?![\w$])"
)
_SHAPED = re.compile(r"_|[a-z0-9][A-Z]|[A-Z]{2,}[a-z]|\.|::|#|\(\)|^[A-Z]\w*[a-z]\w*[A-Z]")
_INTRODUCED = re.compile(
    r"\b(?:class|struct|enum|trait|interface|type|function|method|func|def|macro|module|constant|"
    r"variable|symbol|identifier|name|calls?|uses?|calling|using|callers? of|uses of|extends?|"
    r"implements?|imports?)\s+(?:the\s+|a\s+|an\s+)?"
    r"(?:(?:class|function|method|type|macro|struct)\s+)?([A-Za-z_$][\w$]*)",
    re.IGNORECASE,
)
_FILE = re.compile(r"\.(?:md|rst|txt|toml|json|ya?ml|cfg|ini|html?|css|lock|xml|sql)$")
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_STOP = """
    a about all an and any are as at be been before between by call called caller callers
    calls can class code defined definition did do does done each file files find for from
    function functions get give handle handled handles has have how i implement implemented
    implements in into is it its let line lines list locate look made me method module my
    name named of on one or our part place places project repo repository search see show
    some tell than that the their them then there these they thing this to tree type us use
    used user uses using was we what when where which who whom whose why with work works you
    your
"""
STOP = frozenset(_STOP.split())


@dataclass(frozen=True, slots=True)
class AskedWords:
    """`names` are looked up exactly; `maybe` is a plain word that is one if a definition has it."""

    names: tuple[str, ...]
    maybe: tuple[str, ...]
    words: tuple[str, ...]


def read_question(text: str) -> AskedWords:
    quoted = [m.removesuffix("()") for m in _QUOTED.findall(text)]
    plain = _QUOTED.sub(" ", text)
    words = [m[0] for m in _NAME.finditer(plain)]
    shaped = [n.removesuffix("()") for n in words if _SHAPED.search(n) and not _is_file(n)]
    names = tuple(dict.fromkeys(quoted + shaped))
    topics = [w for w in re.findall(r"[^\W\d]\w*", plain) if w.lower() not in STOP]
    introduced = [w for w in _INTRODUCED.findall(plain) if w.lower() not in STOP]
    maybe = introduced or (topics if len(topics) == 1 else [])
    return AskedWords(names, () if names else tuple(dict.fromkeys(maybe)), split_words(text))


def _is_file(word: str) -> bool:
    """`setup.py` is a file and `e.g` an abbreviation, not members of something."""
    return word.lower() in ("e.g", "i.e") or bool(language_of(word) or _FILE.search(word))


def split_words(text: str) -> tuple[str, ...]:
    """The words of a question or a name, without those that say nothing, in the singular."""
    parts = (word.lower() for word in _WORD.findall(text))
    return tuple(dict.fromkeys(stem(w) for w in parts if w not in STOP and len(w) > 1))


def all_words(text: str) -> list[str]:
    return [stem(word.lower()) for word in _WORD.findall(text)]


def stem(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y" if word != "cookies" else "cookie"
    return word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] not in "su" else word


def last_name(name: str) -> tuple[str, str]:
    """`A.B.c` as the owner `A.B` and the name `c`."""
    parts = [p for p in re.split(r"\.|::|#", name) if p]
    return ".".join(parts[:-1]), parts[-1] if parts else ""
