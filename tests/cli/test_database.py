"""The commands on a store in PostgreSQL: its address is all that changes, and its password is shown
nowhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.private_home import private_home
from tests.postgres import fresh

SECRET = "s3cret-word"


def test_an_address_is_all_that_changes(tmp_path: Path) -> None:
    url = fresh().replace("retinue@/", f"retinue:{SECRET}@/")
    with private_home(tmp_path, lambda request: "Forty-two.") as home:
        outputs = [home.ok("--store", url, "ps")]
        outputs.append(home.ok("--store", url, "run", "Think."))
        assert "Forty-two." in outputs[-1]
        (line,) = home.ok("--store", url, "ps", "--all", "--jsonl").splitlines()
        id = json.loads(line)["id"]
        for command in ("show", "logs", "export"):
            outputs.append(home.ok("--store", url, command, id[-6:]))
            assert "Forty-two." in outputs[-1]
        doctor = home.run("--store", url, "doctor", "--offline", "-v")
        outputs += [doctor.stdout, doctor.stderr]
        assert "hash chain and structure OK" in doctor.stdout and ":***@" in doctor.stdout
        home.ok("--store", url, "host", "stop")
        file = tmp_path / "back.db"
        outputs.append(home.run("migrate", url, str(file)).stderr)
        assert "they are equal" in outputs[-1]
        assert id in home.ok("--store", str(file), "ps", "--all", "--jsonl")
        outputs.append(home.run("migrate", str(file), url).stderr)
        assert "is not empty" in outputs[-1]
        assert SECRET not in "".join(outputs)
        contents = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert contents and not any(SECRET.encode() in text for text in contents)


def test_the_address_can_be_in_the_users_config(tmp_path: Path) -> None:
    url = fresh()
    with private_home(tmp_path, lambda request: "Forty-two.") as home:
        config = Path(home.env["XDG_CONFIG_HOME"], "retinue", "config.toml")
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f'[store]\npath = "{url}"\n')
        home.ok("run", "Think.")
        assert "Think." in home.ok("ps", "--all")
        assert "Think." in home.ok("--store", url, "ps", "--all")
        home.ok("host", "stop")


def test_a_server_that_is_not_there_is_named_without_the_password(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: "Forty-two.") as home:
        url = f"postgresql://ada:{SECRET}@127.0.0.1:1/db"
        for words in (["ps"], ["run", "Hi."]):
            result = home.run("--store", url, *words)
            assert result.returncode != 0 and "did not answer" in result.stderr
            assert SECRET not in result.stdout + result.stderr


ODD = "cnry?one#two-three"


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://ada:{ODD}@127.0.0.1:1/db",
        "postgresql://ada:cnry/one-two-three@127.0.0.1:1/db",
        f"postgresql+psycopg://ada:{ODD}@127.0.0.1:1/db",
        f"POSTGRESQL://ada:{ODD}@127.0.0.1:1/db",
        f"mysql://ada:{ODD}@127.0.0.1:1/db",
    ],
)
def test_an_odd_address_names_no_file_and_shows_no_password(tmp_path: Path, address: str) -> None:
    def is_told(process: subprocess.CompletedProcess[str]) -> bool:
        return any(part in process.stdout + process.stderr for part in ("cnry", "three"))

    with private_home(tmp_path, lambda request: "Forty-two.") as home:
        for words in (["ps"], ["run", "Hi."], ["doctor", "--offline"]):
            result = home.run("--store", address, *words)
            assert result.returncode != 0 and not is_told(result), result
        result = home.run("migrate", "none.db", address)
        assert result.returncode != 0 and not is_told(result), result
        config = home.folder / "config" / "retinue" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f'[store]\npath = "{address}"\n')
        assert not is_told(home.run("ps")) and not is_told(home.run("config"))
        config.unlink()
        assert not is_told(home.run("--store", address, "mcp", "serve", "--print-config"))
        names = [str(path) for path in home.folder.rglob("*")]
        assert not [name for name in names if "cnry" in name]
        assert not list(home.project.glob("*sql*"))


def test_the_password_of_the_store_is_not_written_into_it(tmp_path: Path) -> None:
    """The server lets everybody in, so any password will do."""
    secret = "cnry-nine#eight-seven"
    plain = fresh()
    url = plain.replace("retinue@/", f"retinue:{secret}@/", 1)

    def says(request: Any) -> str:
        return f"It is {secret}."

    with private_home(tmp_path, says) as home:
        result = home.run("--store", url, "run", "Hi.")
        assert result.returncode == 0 and "[redacted:database" in result.stdout, result
        home.ok("--store", url, "host", "stop")
        for file in home.folder.rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes(), file
    with psycopg.connect(plain) as db:
        rows = db.execute("select body from events").fetchall()
        assert rows and not any(secret.encode() in bytes(body) for (body,) in rows)
