"""The version of facts: our code and queries, and the installed grammars. A change of any makes the
kept ones useless, so this is part of their key."""

from __future__ import annotations

import importlib.util
import os
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path

from retinue.syntax.source_languages import LANGUAGES


@lru_cache(maxsize=1)
def code_version() -> bytes:
    here = Path(__file__).parent
    total = blake2b(digest_size=16)
    for path in sorted([*here.glob("*.py"), *here.glob("queries/*.scm")]):
        total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.digest()


@cache
def fact_version(language: str) -> bytes:
    """Of one language: its grammar is known by the size and time of its files."""
    total = blake2b(code_version() + language.encode(), digest_size=16)
    for module in ("tree_sitter", LANGUAGES[language].module):
        spec = importlib.util.find_spec(module)
        folder = os.path.dirname(spec.origin) if spec is not None and spec.origin else ""
        for name in sorted(os.listdir(folder)) if folder else ():
            if name.endswith((".so", ".pyd", ".dylib")):
                status = os.stat(os.path.join(folder, name))
                total.update(f"{name}:{status.st_size}:{status.st_mtime_ns}".encode())
    return total.digest()


def fact_key(digest: bytes, language: str, macros: dict[bytes, bool]) -> bytes:
    total = blake2b(digest + fact_version(language), digest_size=16)
    if language in ("c", "cpp"):
        total.update(repr(sorted(macros.items())).encode())
    return total.digest()
