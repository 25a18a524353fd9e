"""What is said of a provider in trouble, word by word."""

from __future__ import annotations

import pytest

from retinue.host.provider_waits import ProviderWait, of_record

NOW = 1_000_000
IN_24 = NOW + 24_000


@pytest.mark.parametrize(
    "wait, cell, sentence",
    [
        (
            ProviderWait("rate_limit", "anthropic", "429", retry_at=IN_24, tries=1, of=5),
            "anthropic 429: 24 s, 2 of 5",
            "anthropic 429, next try in 24 s, 2 of 5",
        ),
        (
            ProviderWait("server_error", "openai", "500", retry_at=NOW + 7_001, tries=2, of=5),
            "openai 500: 8 s, 3 of 5",
            "openai 500, next try in 8 s, 3 of 5",
        ),
        (
            ProviderWait("network", "ollama", "refused", "127.0.0.1:11434", NOW + 4_000, 1, 5),
            "ollama refused: 4 s, 2 of 5",
            "127.0.0.1:11434 refused the connection, next try in 4 s, 2 of 5",
        ),
        (
            ProviderWait("auth", "openai", "401", retry_at=NOW + 900_000, tries=1),
            "openai rejected the key (401)",
            "openai rejected the API key (401). Check OPENAI_API_KEY.",
        ),
        (
            ProviderWait("rate_limit", "anthropic", "429", retry_at=NOW + 130_000),
            "anthropic 429: 2m 10s",
            "anthropic 429, next try in 2m 10s",
        ),
        (
            ProviderWait("overloaded", "anthropic", "529", retry_at=NOW - 1, tries=7, of=6),
            "anthropic 529: now, try 8",
            "anthropic 529, trying again now, try 8",
        ),
    ],
)
def test_a_row_and_a_line_say_who_what_when_and_which_try(
    wait: ProviderWait, cell: str, sentence: str
) -> None:
    assert (wait.cell(NOW), wait.sentence(NOW)) == (cell, sentence)


def test_a_rate_limit_is_told_apart_from_other_trouble() -> None:
    states = [ProviderWait(kind).state for kind in ("rate_limit", "server_error", "network")]
    assert states == ["rate_limited", "retrying", "retrying"]


def test_a_record_without_a_wait_has_none_and_an_old_one_names_the_provider_by_its_model() -> None:
    spec = {"model": "anthropic:claude", "order": {}}
    assert of_record({"is": "Thinking", "retry_at": 5}, spec) is None
    record = of_record({"retry_at": IN_24, "waits_kind": "overloaded", "tries": 7}, spec)
    assert record is not None
    assert record.cell(NOW) == "anthropic overloaded: 24 s, try 8"
