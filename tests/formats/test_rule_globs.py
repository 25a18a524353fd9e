"""The globs of permission rules: those of paths, by names, and those of tools and commands."""

from __future__ import annotations

import random

import pytest

from retinue.formats.globs import name_pattern, rule_glob, rule_pattern


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("/a/*", "/a/b", True),
        ("/a/*", "/a/b/c", False),
        ("/a/*", "/a/", True),
        ("/a/**", "/a", False),
        ("/a/**", "/a/b", True),
        ("/a/**", "/a/b/c", True),
        ("/a/**/b", "/a/b", True),
        ("/a/**/b", "/a/x/y/b", True),
        ("/**/.env", "/.env", True),
        ("/**/.env", "/a/b/.env", True),
        ("/**/.env", "/a/b/.env.local", False),
        ("/a/**/**", "/a", False),
        ("/a/**/**", "/a/b", True),
        ("/**", "/", True),
        ("/a", "a", False),
        ("a", "/a", False),
        ("/a//b", "/a/b", False),
        ("/[a]", "/[a]", True),
        ("/[a]", "/a", False),
        (r"/\*", "/*", True),
        (r"/\*", "/x", False),
        ("/a**b", "/axb", True),
        ("/a**b", "/a/b", False),
    ],
)
def test_the_path_of_a_rule_is_matched_by_names(pattern: str, path: str, is_match: bool) -> None:
    assert rule_glob(pattern).matches(path) is is_match


@pytest.mark.parametrize(
    ("pattern", "text", "is_match"),
    [
        ("git *", "git log /a/b\nx", True),
        ("git ?og", "git log", True),
        ("git ?og", "git  og x", False),
        ("mcp_*_read", "mcp_files_read", True),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        (r"a\*", "a*", True),
        (r"a\*", "ab", False),
        ("a\\", "a\\", True),
        ("", "", True),
        ("*", "", True),
    ],
)
def test_a_star_in_a_rule_about_text_matches_anything(
    pattern: str, text: str, is_match: bool
) -> None:
    assert bool(rule_pattern(pattern).fullmatch(text)) is is_match


def spells(pattern: str, text: str) -> bool:
    """The same in the most obvious way: a star is nothing, or one character and a star."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return spells(pattern[1:], text) or (bool(text) and spells(pattern, text[1:]))
    return bool(text) and pattern[0] in ("?", text[0]) and spells(pattern[1:], text[1:])


@pytest.mark.parametrize("compiled", [rule_pattern, name_pattern])
def test_stars_match_as_if_every_division_were_tried(compiled: object) -> None:
    rng = random.Random(7)
    assert callable(compiled)
    for _ in range(5_000):
        pattern = "".join(rng.choices("ab*?", k=rng.randrange(8)))
        text = "".join(rng.choices("ab", k=rng.randrange(8)))
        assert bool(compiled(pattern).fullmatch(text)) is spells(pattern, text), (pattern, text)


def test_a_pattern_full_of_stars_is_matched_once() -> None:
    assert not rule_pattern("*a" * 500 + "b").fullmatch("a" * 20_000)
    assert not rule_glob("/**/a" * 200 + "/b").matches("/a" * 2_000)
