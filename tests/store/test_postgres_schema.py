"""The tables of the store in PostgreSQL: made once, whoever comes first; foreign and newer ones are
refused; a password is shown to nobody."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from retinue.errors import ConfigError, StoreError, StoreTooNew, StoreUnreachable
from retinue.formats.database_address import hidden, shown
from retinue.store.postgres.connections import connect
from retinue.store.postgres.database_schema import migrate, migrations, version_of
from tests.postgres import fresh, server


def _migrate(url: str) -> int:
    with connect(url) as db:
        migrate(db, url)
        return version_of(db)


def test_workers_that_start_together_make_the_tables_once() -> None:
    url = fresh()
    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(_migrate, [url] * 12)) == {len(migrations())}


def test_the_files_are_numbered_without_gaps() -> None:
    names = [path.name for path in migrations()]
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))


def test_tables_of_another_program_are_refused_and_stay() -> None:
    url = fresh()
    with connect(url) as db:
        db.execute("create table runs (id int)")
        with pytest.raises(StoreError, match="of another program"):
            migrate(db, url)
        assert version_of(db) == 0
        assert db.execute("select count(*) from runs").fetchone() == (0,)


def test_a_newer_schema_is_refused() -> None:
    url = fresh()
    _migrate(url)
    with connect(url) as db:
        db.execute("insert into retinue_schema (number) values (9999)")
        with pytest.raises(StoreTooNew, match="schema 9999"):
            migrate(db, url)


def test_a_password_is_shown_to_nobody() -> None:
    for url in (
        "postgresql://ada:s3cret@host:5432/db?sslmode=require",
        "postgres://ada:s3c%72et@host/db",
        "postgresql://host/db?user=ada&password=s3cret",
        "postgresql:///db?sslpassword=s3cret",
    ):
        assert "s3c" not in shown(url) and "***" in shown(url)
        assert "s3c" not in hidden(url, f'invalid "s3cret" in {url}')
    assert shown("postgresql://ada@host/db") == "postgresql://ada@host/db"


def test_an_address_that_is_none_is_refused_without_its_password() -> None:
    for url in ("postgresql://ada:s3cret%zz@host/db", "postgresql://ada:s3cret@host/db?x=1"):
        with pytest.raises(ConfigError) as failure:
            connect(url)
        assert "s3cret" not in str(failure.value)


def test_a_server_that_is_not_there_and_a_database_that_is_not_there_are_told_apart() -> None:
    with pytest.raises(StoreUnreachable, match="Check that the server runs"):
        connect("postgresql://ada:s3cret@127.0.0.1:1/db")
    with pytest.raises(StoreError, match="Create the database first"):
        connect(server().url("nowhere"))
