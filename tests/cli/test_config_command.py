"""`retinue config`: the effective values with their origins, changing one, and every wrong use in
one line."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.cli.context import CommandContext
from retinue.host import project_config
from tests.cli.private_home import SECONDS, PrivateHome
from tests.needs import needs

SECRET = "sk-very-secret-value"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[PrivateHome]:
    home = PrivateHome(tmp_path)
    yield home
    home.close()


def user_file(home: PrivateHome, text: str = "") -> Path:
    file = home.folder / "config" / "retinue" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    if text:
        file.write_text(text)
    return file


def project_file(home: PrivateHome, text: str) -> Path:
    file = home.project / ".retinue" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def test_what_is_printed_is_toml_and_says_where_each_value_came_from(home: PrivateHome) -> None:
    file = user_file(
        home, '[models]\n\ndefault = "openai:a"\n[models.aliases]\n"gpt-5.2" = "openai:gpt-5.2"\n'
    )
    project = project_file(home, "[limits]\ndepth = 3\n")
    home.ok("trust", "--yes")
    text = home.ok("config", "--show-origin", env={"RETINUE_MAX_TURNS": "7"})
    values = tomllib.loads(text)
    assert values["models"]["default"] == "openai:a"
    assert values["models"]["aliases"] == {"gpt-5.2": "openai:gpt-5.2"}
    assert (values["limits"]["depth"], values["limits"]["max_turns"]) == (3, 7)
    assert f'default = "openai:a"  # user: {file}:3' in text
    assert f"depth = 3  # project: {project}:2" in text
    assert "max_turns = 7  # environment: RETINUE_MAX_TURNS" in text
    assert 'mode = "manual"  # default' in text


def test_the_nearest_file_of_a_trusted_project_wins(home: PrivateHome) -> None:
    project_file(home, "[limits]\ndepth = 3\nchildren = 5\n")
    inner = home.project / "a" / "b"
    inner.mkdir(parents=True)
    home.ok("trust", "--yes")
    assert home.ok("config", "get", "limits.depth", cwd=inner) == "3"
    user_file(home, "[limits]\ndepth = 9\ntotal = 9\n")
    assert home.ok("config", "get", "limits.depth", cwd=inner) == "3"
    assert home.ok("config", "get", "limits.total", cwd=inner) == "9"


def test_a_project_that_is_not_trusted_changes_nothing_and_that_is_told(home: PrivateHome) -> None:
    project_file(home, '[permissions]\nmode = "bypassPermissions"\n')
    result = home.run("config")
    assert result.returncode == 0
    assert 'mode = "manual"' in result.stdout
    assert ".retinue/config.toml" in result.stderr and "Run `retinue trust`" in result.stderr


def test_no_secret_is_printed_only_whether_it_is_set(home: PrivateHome) -> None:
    user_file(
        home,
        '[models.keys]\nopenai = "WORK_KEY"\nmistral = "OTHER_KEY"\n'
        f'[models.aliases]\nodd = "openai:{SECRET}-x"\n'
        '[mcp_servers.db]\ncommand = "db"\nenv = { MODE = "quiet-value" }\n',
    )
    env = {"WORK_KEY": SECRET, "ANTHROPIC_API_KEY": SECRET + "2"}
    for arguments in (
        ("config", "--show-origin"),
        ("config", "--json"),
        ("config", "get", "models.aliases"),
    ):
        result = home.run(*arguments, env=env)
        assert SECRET not in result.stdout + result.stderr
        assert "quiet-value" not in result.stdout
    text = home.run("config", env=env).stdout
    assert 'openai = "WORK_KEY"  # set' in text
    assert 'mistral = "OTHER_KEY"  # not set' in text
    assert "ANTHROPIC_API_KEY is set" in text


def test_no_secret_in_arguments_or_in_the_path_of_an_address_is_printed(home: PrivateHome) -> None:
    key, word = "Kd8Vm3Xc5Rq1Yz7Ns2Jb4", "Hx7Qv2Lp9Zr4Tn6Wb"
    user_file(
        home,
        f'[models.urls]\nopenai = "https://gw.example.com/{key}/v1"\n'
        f'[mcp_servers.a]\nurl = "https://mcp.example.com/{key}/mcp"\n'
        f'[mcp_servers.b]\ncommand = "b"\nargs = ["--api-key", "{word}", "--header", "X-Auth: '
        f'Bearer {word}"]\n',
    )
    for arguments in (
        ("config",),
        ("config", "--show-origin"),
        ("config", "--json"),
        ("config", "get", "mcp_servers"),
    ):
        result = home.run(*arguments)
        assert (
            key not in result.stdout + result.stderr and word not in result.stdout + result.stderr
        ), arguments
    assert "gw.example.com" in home.run("config").stdout


def test_a_value_is_set_read_and_set_again_with_the_comments_kept(home: PrivateHome) -> None:
    file = user_file(home, '# mine\n[models]\ndefault = "openai:a" # good\n')
    home.ok("config", "set", "models.default", "anthropic:claude-sonnet-4-5")
    home.ok("config", "set", "permissions.deny", "edit(.env),shell(rm *)")
    home.ok("config", "set", "permissions.deny", '["read(secret/**)"]')
    home.ok("config", "set", "limits.timeout", "10m")
    assert file.read_text().startswith(
        '# mine\n[models]\ndefault = "anthropic:claude-sonnet-4-5" # good\n'
    )
    assert home.ok("config", "get", "models.default") == "anthropic:claude-sonnet-4-5"
    assert json.loads(home.ok("config", "get", "permissions.deny")) == ["read(secret/**)"]
    assert home.ok("config", "get", "limits.timeout") == "600.0"
    assert home.ok("config", "path").splitlines() == [f"{file}  user  used"]


def test_a_value_for_the_project_counts_once_it_is_trusted(home: PrivateHome) -> None:
    result = home.run("config", "set", "limits.depth", "2", "--project")
    assert result.returncode == 0 and "This value has no effect yet" in result.stderr
    assert home.ok("config", "get", "limits.depth") == "8"
    home.ok("trust", "--yes")
    assert home.ok("config", "get", "limits.depth") == "2"
    result = home.run("config", "set", "limits.depth", "3", "--project")
    assert "have changed since you trusted it (changed: .retinue/config.toml)" in result.stderr
    assert home.ok("config", "get", "limits.depth") == "8"


WRONG = [
    (("get", "limts.depth"), "Unknown setting 'limts.depth'. Did you mean 'limits.depth'?"),
    (("get", "a b"), "is not a key"),
    (("get", "models.aliases.nobody"), "is not set"),
    (("set", "models.default", "anthropc:x"), "Did you mean 'anthropic'?"),
    (("set", "defalt", "x"), "Did you mean 'models.default'?"),
    (("set", "models.default", "nonsense"), "Unknown model 'nonsense'"),
    (("set", "models.default", "ofline/explorer"), "Did you mean 'offline/explorer'?"),
    (("set", "models.keys.openai", SECRET), "the name of an environment variable"),
    (("set", "models.keys", "X"), "models.keys needs a name: models.keys.NAME"),
    (("set", "models.keys.opnai", "X"), "Did you mean 'openai'?"),
    (("set", "permissions.mode", "atuo"), "Did you mean 'auto'?"),
    (("set", "limits.depth", "deep"), "Expected a whole number, not 'deep'"),
    (("set", "limits.depth", "99"), "at most 64"),
    (("set", "output.color", "allways"), "Did you mean 'always'?"),
    (
        ("set", "sandbox.unsafe_no_sandbox", "true", "--project"),
        "can only be set in your user config",
    ),
    (("set", "mcp_servers.x", "y"), "by hand"),
    (("set", "limits.depth"), "Missing argument"),
    (("sett", "x"), "No such command 'sett'"),
]


@pytest.mark.parametrize(
    ("arguments", "says"), WRONG, ids=lambda x: " ".join(x)[:40] if isinstance(x, tuple) else ""
)
def test_wrong_use_is_one_clear_line_and_exit_code_2(
    home: PrivateHome, arguments: tuple[str, ...], says: str
) -> None:
    result = home.run("config", *arguments)
    assert result.returncode == 2, result.stderr
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert SECRET not in result.stderr
    assert not user_file(home).exists()


def test_every_mistake_of_a_file_has_its_own_line_and_the_rest_is_still_shown(
    home: PrivateHome,
) -> None:
    file = user_file(home, "[limits]\ndepth = 'x'\nmax_turns = -1\ntotal = 4\n[modles]\n")
    result = home.run("config")
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert [line.partition(": ")[2].partition(": ")[0] for line in lines] == [
        f"{file}, line {n}" for n in (2, 3, 5)
    ]
    assert "total = 4" in result.stdout
    value = json.loads(home.run("config", "--json").stdout)
    assert [p["line"] for p in value["problems"]] == [2, 3, 5]
    assert value["problems"][0]["key"] == "limits.depth" and value["problems"][0]["column"] == 1


@needs("bwrap")
def test_on_a_full_disk_the_old_file_stays_and_the_error_says_what_to_do(home: PrivateHome) -> None:
    small = home.folder / "config"
    command = [
        "bwrap",
        "--dev-bind",
        "/",
        "/",
        "--size",
        "4096",
        "--tmpfs",
        str(small),
        "--",
        "/bin/sh",
        "-c",
    ]
    script = f"""
mkdir {small}/retinue && printf '[limits]\\ndepth = 1\\n' > {small}/retinue/config.toml
{sys.executable} -m retinue config set models.aliases.x openai:{"y" * 3000}
echo code $?
cat {small}/retinue/config.toml
ls -A {small}/retinue
"""
    process = subprocess.run(
        [*command, script],
        env=home.env,
        cwd=home.project,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert process.stdout.splitlines() == ["code 1", "[limits]", "depth = 1", "config.toml"], (
        process.stderr
    )
    assert "No space left on device" in process.stderr and "Free some space" in process.stderr
    assert len(process.stderr.splitlines()) == 1


def test_a_projects_file_that_leads_elsewhere_is_not_written(home: PrivateHome) -> None:
    mine = user_file(home, "[limits]\ndepth = 1\n")
    (home.project / ".retinue").mkdir()
    (home.project / ".retinue" / "config.toml").symlink_to(mine)
    result = home.run("config", "set", "permissions.mode", "auto", "--project")
    assert result.returncode == 2 and "is outside the project" in result.stderr
    assert mine.read_text() == "[limits]\ndepth = 1\n"


def test_what_only_the_environment_is_asked_for_is_put_there(home: PrivateHome) -> None:
    text = '[models]\nprobe = false\n[models.keys]\nopenai = "WORK"\n'
    user_file(home, text + '[host]\nidle_seconds = 90\n[store]\npath = "/x/y.db"\n')
    env = {
        name: value
        for name, value in home.env.items()
        if name not in ("RETINUE_PROBE", "RETINUE_IDLE_SECONDS")
    }
    context = CommandContext(environ={**env, "WORK": SECRET}, cwd=str(home.project))
    environment = project_config.environment(context.project, project_config.load(context.project))
    assert (
        environment["RETINUE_IDLE_SECONDS"],
        environment["RETINUE_PROBE"],
        environment["OPENAI_API_KEY"],
    ) == (
        "90",
        "0",
        SECRET,
    )
    assert "RETINUE_START_SECONDS" not in environment
    assert project_config.stored(context.environ) == "/x/y.db"
    context = CommandContext(environ={**env, "RETINUE_IDLE_SECONDS": "5"}, cwd=str(home.project))
    assert (
        project_config.environment(context.project, project_config.load(context.project))[
            "RETINUE_IDLE_SECONDS"
        ]
        == "5"
    )
    for wrong in ("[store", "store = 3\n", "[store]\npath = 3\n"):
        user_file(home, wrong)
        assert project_config.stored(context.environ) == ""
