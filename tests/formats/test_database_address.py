"""A password in the address of a database is shown to nobody, however it was written."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import conninfo

from retinue.core.secret_values import secrets_of
from retinue.formats.database_address import (
    hidden,
    is_postgres,
    passwords,
    shown,
    without_password,
    wrong_address,
)

PASSWORD = "canary"
WITH = [
    "postgresql://ada:canary@host/db",
    "postgresql://ada:canary?x#y@host:5432/db",
    "postgresql://ada:x#canary@host",
    "postgresql://ada:x@canary@host/db",
    "postgresql://ada:x/canary@host/db",
    "postgresql://ada:canary/12?x@host/db?sslmode=require",
    "postgresql://:canary@host/db",
    "postgresql://ada:canary@[::1]:5432/db",
    "postgresql://ada:canary@one:1,two:2/db",
    "postgresql://host/db?user=ada&password=x#canary",
    "postgresql://host/db?sslpassword=canary&user=ada",
    "mysql://ada:canary@host/db",
    "postgresql+psycopg://ada:canary@host/db",
    "POSTGRESQL://ada:canary@host/db",
]
WITHOUT = [
    "postgresql://ada@host/db",
    "postgresql://host:5432/db?user=ada@host",
    "postgresql://one:1,two:2/db?user=ada@host",
    "postgresql://[::1]:5432/db?user=ada@host",
    "postgresql:///db?host=/run/a@b",
]


@pytest.mark.parametrize("url", WITH)
def test_no_password_is_shown(url: str) -> None:
    assert PASSWORD not in shown(url) and "***" in shown(url)
    assert PASSWORD not in without_password(url)
    assert any(PASSWORD in one for one in passwords(url))
    assert PASSWORD not in hidden(url, f'invalid port "canary" in {url}: {passwords(url)}')


@pytest.mark.parametrize("url", WITHOUT)
def test_the_rest_of_an_address_stays(url: str) -> None:
    assert shown(url) == without_password(url) == url and passwords(url) == []


@pytest.mark.parametrize("url", [url for url in WITH if is_postgres(url)])
def test_what_the_driver_takes_for_the_password_is_one_of_those(url: str) -> None:
    try:
        result = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return
    for name in ("password", "sslpassword"):
        assert not result.get(name) or any(str(result[name]) in one for one in passwords(url))


@pytest.mark.parametrize("url", ["postgresql://ada:much#longer@h/db", "redis://:much?longer@h/0"])
def test_a_password_with_signs_of_addresses_is_known_as_a_secret(url: str) -> None:
    assert any("longer" in one and "much" in one for one in secrets_of({"SOME_URL": url}).values())


def test_what_is_neither_a_file_nor_postgresql_is_refused_and_shown_without_its_password() -> None:
    for store in (*WITH[-3:], "sqlite:///there.db", "postgres:/ada:canary@host/db"):
        assert "is not the address of a store" in wrong_address(store)
    assert all(PASSWORD not in wrong_address(store) for store in WITH[-3:])
    for store in ("retinue.db", "./a:b/retinue.db", "/tmp/x", WITH[0], "", None, 7):
        assert wrong_address(store) == ""
