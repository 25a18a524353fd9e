"""The wheel in a virtual environment with what it needs and nothing else, as a user has it after
`pip install retinue`."""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.cli.private_home import Llm
from tests.waiting import SECONDS

ROOT = Path(__file__).parents[2]
PROVIDERS = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", ""),
}


def required(name: str, distributions: dict[str, importlib.metadata.Distribution]) -> None:
    """A package and all that it needs here, without extras; their versions are those of
    `constraints.txt`."""
    if name in distributions:
        return
    distributions[name] = importlib.metadata.distribution(name)
    for text in distributions[name].requires or ():
        need = Requirement(text)
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            required(plain(need.name), distributions)


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, by the first worker that needs it."""
    folder = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        folder = folder.parent
    with open(folder / "installed.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            _build(folder / "build")
            (folder / "build").rename(folder / "installed")
    return folder / "installed" / "v"


def _build(folder: Path) -> None:
    """Nothing is downloaded: packages are taken from where the tests run."""

    def run(*command: object) -> None:
        process = subprocess.run(
            [sys.executable, "-m", *map(str, command)], cwd=ROOT, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr

    offline = ("--quiet", "--no-deps", "--no-index")
    run("pip", "wheel", *offline, "--no-build-isolation", "-w", folder, ".")
    (wheel,) = folder.glob("retinue-*.whl")
    run("venv", "--without-pip", folder / "v")
    (site,) = (folder / "v" / "lib").glob("python*/site-packages")
    distributions: dict[str, importlib.metadata.Distribution] = {}
    required("retinue", distributions)
    for name, package in distributions.items():
        if name != "retinue":
            _copy(package, site)
    run("pip", "--python", folder / "v" / "bin" / "python", "install", *offline, wheel)
    program = folder / "v" / "bin" / "retinue"
    program.write_text(program.read_text().replace(str(folder), str(folder.parent / "installed")))


def _copy(package: importlib.metadata.Distribution, site: Path) -> None:
    for file in package.files or ():
        source = Path(str(package.locate_file(file)))
        if ".." not in file.parts and source.suffix != ".pyc":
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, site / file)


class Installed:
    """The program of the environment, in a project and a home of its own."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.program, self.project = environment / "bin" / "retinue", folder / "project"
        (self.project / "src").mkdir(parents=True)
        (self.project / "README.md").write_text("# Adder\n\nAdds numbers.\n")
        (self.project / "src" / "adder.py").write_text("def add(a, b):\n    return a + b\n")
        self.env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "XDG_RUNTIME_DIR": str(folder),
            "RETINUE_IDLE_SECONDS": "0.5",
            "RETINUE_PROBE": "0",
        }
        (folder / "home").mkdir()

    def __call__(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *arguments],
            cwd=self.project,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )


@pytest.fixture
def installed(environment: Path, tmp_path: Path) -> Installed:
    return Installed(environment, tmp_path)


def test_it_works_offline(installed: Installed) -> None:
    process = installed("run", "where is add defined?")
    assert process.returncode == 0, process.stderr
    assert "src/adder.py:1" in process.stdout


@pytest.mark.parametrize("provider", PROVIDERS)
def test_it_asks_a_model_with_nothing_but_a_key(installed: Installed, provider: str) -> None:
    key, url, path = PROVIDERS[provider]
    with Llm(["The parser copies it."]) as llm:
        process = installed("run", "why?", **{key: "sk-test", url: f"{llm.llm.url}{path}"})
    assert (process.returncode, process.stdout.strip()) == (0, "The parser copies it."), (
        process.stderr
    )


def test_every_line_of_doctor_is_true(installed: Installed) -> None:
    process = installed("doctor", "--offline", "--json")
    assert process.returncode == 0, process.stderr
    checks = {f["name"]: f for f in json.loads(process.stdout)["checks"]}
    assert [f["name"] for f in checks.values() if f["state"] == "broken"] == []
    assert (
        "not installed: acp: retinue acp, for editors; cluster: stores in PostgreSQL, and retinue "
        "worker; local: models from GGUF files; otel: spans and metrics for "
        "OpenTelemetry; temporal: retinue worker --dispatch temporal://HOST:PORT"
        in checks["extras"]["text"]
    )
    assert installed("top").returncode != 0, "which it says is not installed"
    assert "aiohttp" in checks["libraries"]["text"]


def test_it_serves(installed: Installed) -> None:
    server = subprocess.Popen(
        [installed.program, "serve", "--port", "0"],
        cwd=installed.project,
        env=installed.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = ""
        while not address:
            line = server.stdout.readline()
            assert line, "it ended without an address"
            match = re.search(r"http://127\.0\.0\.1:\d+", line)
            address = match[0] if match else ""
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/api/v1/health", timeout=SECONDS)
    finally:
        server.terminate()
        server.communicate(timeout=SECONDS)
