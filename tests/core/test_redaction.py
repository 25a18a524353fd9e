"""No form of a known secret survives, whatever stands around it and however it is cut; clean text
is left alone."""

from __future__ import annotations

import base64
import html
import json
import quopri
import re
import shlex
import string
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.redaction import PIECE, Redactor
from retinue.core.secret_matcher import LEAST
from retinue.core.secret_values import secret_names, secrets_of, secrets_of_entry, secrets_of_server

KEY = "sk-live_9aB+cD/eF~gH0123"
PASSWORD = 'p@ss "wörd" & <kö>/\\%'

one_line = st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"))
secret_texts = st.one_of(
    st.text(string.ascii_letters + string.digits + "-_", min_size=LEAST, max_size=60),
    st.text(string.printable.strip(), min_size=LEAST, max_size=40),
    st.text(one_line, min_size=LEAST, max_size=30).filter(
        lambda s: s.strip() == s and len(s.splitlines()) == 1
    ),
).filter(lambda s: len(s.strip()) >= LEAST)
around = st.text(max_size=40)


def forms_of(secret: str, before: bytes = b"", after: bytes = b"") -> dict[str, str]:
    data = before + secret.encode() + after
    standard, safe = base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()
    return {
        "raw": secret,
        "base64": standard,
        "base64 without padding": standard.rstrip("="),
        "urlsafe": safe,
        "urlsafe without padding": safe.rstrip("="),
        "base64 in a url": quote(standard, safe=""),
        "url": quote(secret),
        "url, all of it": quote(secret, safe=""),
        "url, small letters": re.sub(r"%..", lambda m: m[0].lower(), quote(secret, safe="")),
        "form": quote_plus(secret),
        "twice in a url": quote(quote(secret, safe=""), safe=""),
        "hex": data.hex(),
        "HEX": data.hex().upper(),
        "json": json.dumps(secret)[1:-1],
        "json in utf-8": json.dumps(secret, ensure_ascii=False)[1:-1],
        "json in json": json.dumps(json.dumps(secret))[3:-3],
        "html": html.escape(secret),
        "html in attributes only": html.escape(secret, quote=False),
    }


def core_of(secret: str, before: bytes) -> str:
    """What base64 makes of the secret's own whole characters."""
    n = len(before) % 3
    text = base64.b64encode(bytes(n) + secret.encode()).decode()
    return text[(0, 2, 3)[n] : (n + len(secret.encode())) * 8 // 6]


@pytest.mark.parametrize(
    "secret", [KEY, PASSWORD, "x" * LEAST, "correct horse battery", "ünïcödé-γλώσσα", "🔑" * LEAST]
)
@pytest.mark.parametrize("before", [b"", b"u", b"us", b"user:", b"a longer text: "])
def test_every_form_is_replaced_at_every_alignment(secret: str, before: bytes) -> None:
    redactor = Redactor({"API_KEY": secret})
    for name, form in forms_of(secret, before, b" and more").items():
        cleaned = redactor.clean(f"<<{form}>>")
        assert "[redacted:API_KEY]" in cleaned, name
        assert form not in cleaned and core_of(secret, before) not in cleaned, name
        assert cleaned.startswith("<<") and cleaned.endswith(">>")
        data = redactor.clean_bytes(b"\xff\x00" + form.encode() + b"\xfe")
        assert (
            form.encode() not in data and data.startswith(b"\xff\x00") and data.endswith(b"\xfe")
        ), name


@settings(max_examples=150, deadline=None)
@given(
    secret=secret_texts,
    rest=around,
    right=around,
    before=st.binary(max_size=5),
    after=st.binary(max_size=5),
)
def test_no_form_of_a_random_secret_survives_in_random_text(
    secret: str, rest: str, right: str, before: bytes, after: bytes
) -> None:
    redactor = Redactor([secret])
    for name, form in forms_of(secret, before, after).items():
        cleaned = redactor.clean(rest + form + right)
        assert secret not in cleaned, name
        assert form not in cleaned or len(form) < LEAST, name
        assert core_of(secret, before) not in cleaned or name not in ("base64", "urlsafe"), name


@settings(max_examples=150, deadline=None)
@given(
    secrets=st.lists(secret_texts, min_size=1, max_size=4),
    parts=st.lists(around, min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    pick=st.integers(0, 17),
)
def test_a_stream_cut_anywhere_shows_no_secret(
    secrets: list[str], parts: list[str], cuts: list[int], pick: int
) -> None:
    redactor = Redactor(secrets)
    form = list(forms_of(secrets[0]).values())[pick]
    text = form.join([*parts, ""])
    stream, output = redactor.stream(), ""
    at, n = 0, 0
    while at < len(text):
        step = cuts[n % len(cuts)]
        output += stream.feed(text[at : at + step])
        at, n = at + step, n + 1
    output += stream.close()
    assert form not in output
    assert all(secret not in output for secret in secrets)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=200), end=st.integers(1, 20))
def test_clean_text_passes_unchanged_whole_and_in_pieces(text: str, end: int) -> None:
    redactor = Redactor([KEY, "another-Secret-77"])
    assert redactor.clean(text) is text
    stream = redactor.stream()
    pieces = [stream.feed(text[i : i + end]) for i in range(0, len(text), end)]
    assert "".join([*pieces, stream.close()]) == text


def test_a_stream_holds_back_only_what_may_become_a_secret() -> None:
    stream = Redactor({"K": "abcdefgh"}).stream()
    assert stream.feed("see abc") == "see "
    assert stream.feed("x and ab") == "abcx and "
    assert stream.feed("cdef") == ""
    assert stream.feed("gh!") == "[redacted:K]!"
    assert stream.feed("abc") == ""
    assert stream.close() == "abc"


def test_a_stream_waits_for_the_longer_of_two_secrets() -> None:
    stream = Redactor({"SHORT": "abcdefgh", "LONG": "abcdefghijklmnop"}).stream()
    assert stream.feed("abcdefgh") == ""
    assert stream.feed("ijkl") == ""
    assert stream.feed("mnop.") == "[redacted:LONG]."
    assert stream.feed("abcdefghij") == ""
    assert stream.feed("!") == "[redacted:SHORT]ij!"


def test_a_value_that_is_too_short_is_left_alone() -> None:
    redactor = Redactor({"A": "true", "B": "1234567", "C": ""})
    assert not redactor
    assert redactor.clean("true 1234567") == "true 1234567"


def test_a_secret_of_many_lines_is_found_line_by_line() -> None:
    lines = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "BKcwggSjAgEAAoIBAQDVcQ8QfXr6hX0O"]
    pem = "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----", ""])
    redactor = Redactor({"PEM": pem})
    for text in (
        pem,
        json.dumps(pem),
        lines[1],
        base64.b64encode(pem.encode()).decode(),
        pem.encode().hex(),
    ):
        cleaned = redactor.clean(text)
        assert cleaned.count("[redacted:PEM]") >= 1
        assert not any(line in cleaned for line in lines)
    assert "BEGIN PRIVATE KEY" in redactor.clean(pem)


def test_a_very_long_secret_is_found_whole_and_in_part() -> None:
    secret = "".join(string.ascii_letters[(n * n + n // 7) % 52] for n in range(5 * PIECE + 3))
    redactor = Redactor([secret])
    assert set(redactor.clean(secret).split("[redacted]")) == {""}
    assert secret[PIECE : 2 * PIECE] not in redactor.clean("x" + secret[: 3 * PIECE])


def test_a_mark_never_shows_what_it_hides() -> None:
    for value in ("redacted", "[redacted]", "redacted:TOKEN", "TOKEN]xx"):
        assert value not in Redactor({"TOKEN": value}).clean(f"see {value}.")
    assert Redactor({"hunter2hunter2": "hunter2hunter2"}).clean("hunter2hunter2") == "[redacted]"
    assert Redactor({"A]\n[B": "hunter2hunter2"}).clean("hunter2hunter2") == "[redacted:A???B]"


def test_a_redactor_does_not_show_its_values_when_it_is_printed() -> None:
    assert KEY not in repr(Redactor([KEY])) and KEY not in str(Redactor(secrets_of({"X_KEY": KEY})))


ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/srv/people/ada",
    "LANG": "en_US.UTF-8",
    "PWD": "/srv/people/ada/work",
    "OLDPWD": "/srv/people/ada/work",
    "MAX_TOKENS": "100000000",
    "SSH_AUTH_SOCK": "/run/agent/listener.1",
    "SSL_KEY_FILE": "/etc/ssl/private.pem",
    "AUTH_URL": "https://login.example.org/",
    "ANTHROPIC_API_KEY": "sk-ant-0123456789",
    "ANTHROPIC_AUTH_TOKEN": "token-of-anthropic",
    "HF_TOKEN": "hf_abcdefghijk",
    "PGPASSWORD": "postgres-pass",
    "MYSQL_PWD": "mysql-pass-1",
    "DB_PASSWD": "passwd-of-db",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG",
    "SHORT_TOKEN": "abc",
    "DATABASE_URL": "postgres://ada:s3cr%40t-word@db.example.org:5432/x?sslmode=require",
    "REDIS": "redis://:only-a-password@127.0.0.1:6379",
    "GIT_REMOTE": "https://ghp_0123456789abcdef@code.example.org/x.git",
    "STORAGE": "AccountName=a;AccountKey=YWJjZGVmZ2hpamts==;EndpointSuffix=x",
    "LIBPQ": "host=db user=ada password='quoted secret 1' dbname=x",
    "SLACK_WEBHOOK_URL": "https://hooks.example.org/T0/B0/abcdefgh",
}


def test_the_secrets_of_an_environment_are_found_by_name_and_by_shape() -> None:
    harmless = {
        "PATH",
        "HOME",
        "LANG",
        "PWD",
        "OLDPWD",
        "MAX_TOKENS",
        "SSH_AUTH_SOCK",
        "SSL_KEY_FILE",
        "AUTH_URL",
    }
    assert secret_names(ENVIRONMENT) == sorted(set(ENVIRONMENT) - harmless - {"SHORT_TOKEN"})
    assert {
        "s3cr%40t-word",
        "s3cr@t-word",
        "only-a-password",
        "ghp_0123456789abcdef",
        "quoted secret 1",
    } <= set(secrets_of(ENVIRONMENT).values())
    redactor = Redactor(secrets_of(ENVIRONMENT))
    text = json.dumps(ENVIRONMENT)
    assert not [
        name for name, value in secrets_of(ENVIRONMENT).items() if value in redactor.clean(text)
    ]
    assert "db.example.org:5432" in redactor.clean(text)
    assert "[redacted:DATABASE_URL]" in redactor.clean("the password is s3cr@t-word")


def test_the_keys_of_every_known_provider_count_as_secrets() -> None:
    from retinue.models.providers import PROVIDERS

    names = {key for provider in PROVIDERS.values() for key in provider.keys}
    assert names
    assert secret_names(dict.fromkeys(names, "0123456789abcdef")) == sorted(names)


LETTERS = "Zq8Rt5Yv2Bk7Jd4Hf1Gs9Ac6Lm3Np0Xw"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.Zq8Rt5Yv2Bk7Jd4Hf1"


@pytest.mark.parametrize(
    ("entry", "secret"),
    [
        (
            {"env": {"HEADERS": '{"Authorization": "Bearer ntn_5521A8r7Kq2Lm9Xy4", "V": "1"}'}},
            "ntn_5521A8r7Kq2Lm9Xy4",
        ),
        ({"env": {"SETTINGS": '{"a": [{"password": "hunter2hunter2"}]}'}}, "hunter2hunter2"),
        ({"args": ["--header", f"Authorization: Bearer {LETTERS}"]}, LETTERS),
        ({"args": ["-H", "X-Api-Key: opensesame"]}, "opensesame"),
        ({"args": ["-e", "GITHUB_PAT=opensesame", "image"]}, "opensesame"),
        ({"env": {"IDENTITY": JWT}}, JWT),
        ({"args": [f"--jwt-is={JWT}"]}, JWT),
        ({"env": {"UP": "${UNSET:-Kp3Vw8Xc1Zb6}"}}, "Kp3Vw8Xc1Zb6"),
        ({"args": ["--x", "${API_KEY:-opensesame}"]}, "opensesame"),
        ({"headers": {"X-Gate": "opensesame"}}, "opensesame"),
        ({"http_headers": {"X-Gate": "open-${WHO}-sesame"}}, "open-${WHO}-sesame"),
        ({"env": {"UP": "open-sesame-open-sesame"}}, "open-sesame-open-sesame"),
        ({"env": {"UP": "hunter2hunter"}}, "hunter2hunter"),
        ({"url": f"https://mcp.example.com/s/{LETTERS}/mcp"}, LETTERS),
    ],
)
def test_the_secrets_of_a_server_are_found_wherever_its_file_has_them(
    entry: dict[str, Any], secret: str
) -> None:
    assert secret in secrets_of_entry("s", entry).values()


def test_what_everybody_may_know_of_a_server_stays() -> None:
    env = {
        "NODE_ENV": "production",
        "DIR": "/srv/ada/project-12345678/a",
        "LEVEL": "debug",
        "HOST": "db.example.com:5432",
    }
    headers = {"Accept": "application/json, text/event-stream", "Notion-Version": "2022-06-28"}
    args = ("-y", "@modelcontextprotocol/server-github", "--root=/srv/data", "run", "--level=debug")
    assert (
        secrets_of_server(
            "s", env=env, headers=headers, url="https://api.example.com/mcp/v1", args=args
        )
        == {}
    )


def test_a_key_in_the_path_of_an_address_is_known() -> None:
    assert (
        LETTERS in secrets_of({"OPENAI_BASE_URL": f"https://gw.example.com/{LETTERS}/v1"}).values()
    )


QUOTED = "p@ss'word!$1=sk_live.x+y/z"


@pytest.mark.parametrize(
    "output",
    [
        shlex.quote(QUOTED),
        QUOTED.replace("'", "'\\''"),
        re.sub(r"(\W)", r"\\\1", QUOTED),  # printf %q, properties of Java
        re.escape(QUOTED),
        re.sub(r"([_*.!+])", r"\\\1", QUOTED),  # Markdown
        re.sub(r"\W", lambda m: f"\\x{ord(m[0]):02x}", QUOTED),
        re.sub(r"\W", lambda m: f"\\x{ord(m[0]):02X}", QUOTED),
        quopri.encodestring(QUOTED.encode()).decode(),
        json.dumps(re.escape(QUOTED)),
    ],
)
def test_a_secret_is_seen_through_what_puts_it_between_quotes(output: str) -> None:
    redactor = Redactor({"PASSWORD": QUOTED})
    assert "live" not in redactor.clean(f"a {output} b")
    assert redactor.suspects_json(json.dumps({"a": output}).encode())
    for n in range(len(output)):
        stream = redactor.stream()
        assert "live" not in stream.feed(output[:n]) + stream.feed(output[n:]) + stream.close()
