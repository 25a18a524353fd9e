"""How a question is read: what is an identifier, and what are words."""

from __future__ import annotations

import pytest

from retinue.syntax.question_words import last_name, read_question, split_words


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("where is url_for?", ("url_for",)),
        ("Where is class QuerySet defined?", ("QuerySet",)),
        ("who calls Flask.url_for and HTTPError?", ("Flask.url_for", "HTTPError")),
        ("find std::sort and Set#add", ("std::sort", "Set#add")),
        ("who calls `main`?", ("main",)),
        ("what does setup() do", ("setup",)),
        ("where is setup.py used, e.g. in CI?", ()),
        ("where are session cookies handled?", ()),
    ],
)
def test_an_identifier_is_known_by_its_form(question: str, names: tuple[str, ...]) -> None:
    assert read_question(question).names == names


@pytest.mark.parametrize(
    ("question", "maybe"),
    [
        ("where is Flask defined?", ("Flask",)),
        ("who calls main in the server?", ("main",)),
        ("where are session cookies handled?", ()),
        ("where is `x` and main?", ()),
    ],
)
def test_a_plain_word_may_be_a_name_when_it_is_alone_or_introduced(
    question: str, maybe: tuple[str, ...]
) -> None:
    assert read_question(question).maybe == maybe


def test_words_are_split_and_in_the_singular() -> None:
    assert split_words("Where are sessionCookies and retries handled?") == (
        "session",
        "cookie",
        "retry",
    )
    assert split_words("the class of this address") == ("address",)


def test_an_owner_is_what_comes_before_the_last_name() -> None:
    assert last_name("a::B.c") == ("a.B", "c")
    assert last_name("c") == ("", "c")
    assert last_name("..") == ("", "")
