"""The code on the pages runs. The Python blocks of a page are one program and its shell blocks one
script; a `text` block right after them is what they print. A block that cannot be run has a comment
before it with the reason: `<!-- not run: it installs a package -->`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.private_home import Llm, PrivateHome
from tests.waiting import SECONDS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^\n]+) -->\n\n?)?"
    r"^```(?P<language>\w*)\n(?P<code>.*?)^```$"
    r"(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
RUN = ("python", "sh")
SHOWN = ("text", "markdown", "yaml", "mermaid", "toml", "json")


class Block(NamedTuple):
    language: str
    code: str
    output: str
    reason: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["code"], m["output"] or "", m["reason"] or "")
        for m in BLOCK.finditer(text)
    ]


def programs(language: str) -> list[Path]:
    return [
        page
        for page in PAGES
        if any(one.language == language and not one.reason for one in blocks(page))
    ]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def missing(output: str, printed: str) -> list[str]:
    """Lines of the output on the page that were not printed, or not in this order."""
    rest = iter(printed.splitlines())
    return [line for line in output.splitlines() if not any(line in one for one in rest)]


@pytest.fixture(scope="module")
def provider() -> Iterator[dict[str, str]]:
    """Keys and addresses with which the names of real models lead to a scripted provider."""
    with Llm(["Done."]) as llm:
        yield {
            **llm.env,
            "ANTHROPIC_API_KEY": "sk-ant-very-secret",
            "ANTHROPIC_BASE_URL": llm.llm.url,
        }


@pytest.mark.parametrize("page", programs("python"), ids=name_of)
def test_the_python_on_a_page_runs(page: Path, tmp_path: Path, provider: dict[str, str]) -> None:
    output = [one for one in blocks(page) if one.language == "python" and not one.reason]
    program = tmp_path / "page.py"
    program.write_text("\n".join(one.code for one in output), encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-W", "error", program],
        capture_output=True,
        cwd=tmp_path,
        encoding="utf-8",
        env={**os.environ, **provider, "PYTHONPATH": str(ROOT / "src")},
        timeout=SECONDS,
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert missing("".join(one.output for one in output), process.stdout) == [], process.stdout


def test_the_python_on_the_pages_has_the_names_and_signatures_of_the_package(
    tmp_path: Path,
) -> None:
    """Checked as the tests are: values of wrong types are not looked for."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    of_tests = next(o for o in settings["overrides"] if "tests.*" in o["module"])
    codes = [f"--disable-error-code={code}" for code in of_tests["disable_error_code"]]
    lenient = ["--allow-untyped-defs", "--allow-untyped-calls", "--allow-incomplete-defs"]
    for page in programs("python"):
        output = [one.code for one in blocks(page) if one.language == "python" and not one.reason]
        name = re.sub(r"\W", "_", name_of(page).lower().removesuffix(".md"))
        (tmp_path / f"page_{name}.py").write_text("\n".join(output), encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", *lenient, *codes, str(tmp_path)],
        capture_output=True,
        cwd=ROOT,
        encoding="utf-8",
    )
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.parametrize("page", programs("sh"), ids=name_of)
def test_the_commands_on_a_page_run(page: Path, tmp_path: Path, provider: dict[str, str]) -> None:
    output = [one for one in blocks(page) if one.language == "sh" and not one.reason]
    home = PrivateHome(
        tmp_path, RETINUE_IDLE_SECONDS="60", **provider
    )  # one host for the whole page
    path = os.pathsep.join([str(Path(sys.executable).parent), home.env["PATH"]])
    (home.project / "app.py").write_text('"""Adds."""\n\n\ndef add(a, b):\n    return a + b\n')
    try:
        process = subprocess.run(
            ["bash", "-euo", "pipefail"],
            input="\n".join(one.code for one in output),
            capture_output=True,
            cwd=home.project,
            encoding="utf-8",
            env={**home.env, "PATH": path},
            timeout=SECONDS,
        )
    finally:
        home.close()
    assert process.returncode == 0, process.stdout + process.stderr
    assert missing("".join(one.output for one in output), process.stdout) == [], process.stdout


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_run_or_shown_or_has_a_reason(page: Path) -> None:
    for one in blocks(page):
        assert one.language in (*RUN, *SHOWN) or one.reason, one.code
        if one.language == "toml":
            assert tomllib.loads(one.code)
        elif one.language == "json":
            assert json.loads(one.code)


def test_the_number_of_fences_is_the_number_of_blocks() -> None:
    for page in PAGES:
        fences = len(re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE))
        outputs = sum(bool(one.output) for one in blocks(page))
        assert fences == 2 * (len(blocks(page)) + outputs), name_of(page)
