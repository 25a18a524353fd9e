"""The commands on a store in PostgreSQL: its address is all that changes, and its password is shown
nowhere."""

from __future__ import annotations

import json
from pathlib import Path

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
