"""The nearest known name."""

import pytest

from retinue.formats.suggestion import did_you_mean, nearest

KNOWN = ("anthropic", "openai", "gemini", "Ollama")


@pytest.mark.parametrize(
    ("word", "name"),
    [("antropic", "anthropic"), ("OPENAI", "openai"), ("olama", "Ollama"), ("zzz", ""), ("", "")],
)
def test_the_nearest_name_is_found_whatever_its_case(word: str, name: str) -> None:
    assert nearest(word, KNOWN) == name
    assert did_you_mean(word, KNOWN) == (f" Did you mean {name!r}?" if name else "")


def test_a_cutoff_asks_for_more_likeness() -> None:
    assert nearest("gem", KNOWN) == "gemini" and nearest("gem", KNOWN, cutoff=0.7) == ""


def test_a_huge_word_costs_nothing() -> None:
    assert nearest("anthropic" + "x" * 10_000_000, KNOWN) == ""
