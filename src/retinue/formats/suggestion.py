"""Finds the known name closest to an unknown one."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 80


def nearest(word: str, known_names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The known name that is most like a word, whatever its case; "" when none is near. Of a long
    word only the beginning is compared."""
    import difflib  # few words are wrong

    by_low = {name.lower(): name for name in known_names}
    match = difflib.get_close_matches(word[:LONGEST].lower(), by_low, n=1, cutoff=cutoff)
    return by_low[match[0]] if match else ""


def did_you_mean(word: str, known_names: Iterable[str]) -> str:
    """` Did you mean 'x'?`, to be put behind a sentence, or nothing."""
    name = nearest(word, known_names)
    return f" Did you mean {name!r}?" if name else ""
