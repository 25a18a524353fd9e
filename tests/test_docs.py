"""Pages agree with the code: generated ones are up to date, links lead somewhere, named files
exist."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest

import retinue
from docs.makers import pages
from retinue.agent import AGENT_OPTIONS
from retinue.option_types import RetinueOptions, RunOptions
from retinue.outcomes import Outcome
from retinue.tools.start_options import ChildOptions
from tests.crash.test_checker import FAULTS
from tests.simulation.mutations import MUTATIONS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").glob("*.md")])
GENERATED = pages()
FENCES = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The text of a page without its code."""
    return FENCES.sub("", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", GENERATED, ids=name_of)
def test_a_generated_page_is_up_to_date(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == GENERATED[page], "run `make docs`"


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = []
    for link in LINK.findall(prose(page)):
        target, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            links.append(link)
    assert links == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    paths, new = set[Path](), [ROOT / "README.md"]
    while new:
        page = new.pop()
        paths.add(page)
        for link in LINK.findall(prose(page)):
            file = (page.parent / link.partition("#")[0]).resolve()
            if file.suffix == ".md" and file.exists() and file not in paths:
                new.append(file)
    assert [name_of(page) for page in PAGES if page not in paths and "docs" in page.parts] == []


def test_decisions_have_one_form() -> None:
    form = ["Context", "Decision", "Consequences"]
    for page in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        text = page.read_text(encoding="utf-8")
        assert re.match(rf"# {int(page.name[:4])}\. [^\n]+\n\nStatus: \w", text), page.name
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == form, page.name


SOURCE = ROOT / "src" / "retinue"
TOPS = {
    **{path.name: SOURCE for path in SOURCE.iterdir() if path.is_dir()},
    **dict.fromkeys(("src", "tests", "bench", "docs", "examples", "scripts"), ROOT),
}
"""The folders with which a path on a page may begin, and where they are."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_of_ours_that_a_page_names_exists(page: Path) -> None:
    paths = re.findall(r"`([\w/.-]+/[\w-]+\.(?:py|sh|json|toml|sql))`", prose(page))
    named = [path for path in paths if path.partition("/")[0] in TOPS]
    missing_path = [path for path in named if not (TOPS[path.partition("/")[0]] / path).exists()]
    assert [path for path in missing_path if not re.search(r"src/\w+\.py$", path)] == []  # made up


def rows_under(heading: str) -> set[str]:
    """The words of code in the first column of the table of the API page with this heading."""
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    table = page.split(f"| {heading} | meaning |", 1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[1] for line in table.splitlines()[1:] if line.startswith("|")]
    return {re.split(r"[=(]", word)[0] for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def test_every_option_is_in_its_table() -> None:
    runs = {*RunOptions.__annotations__, *ChildOptions.__annotations__}
    runtimes = {*RetinueOptions.__annotations__, "store", "deps", "agents", "hooks"}
    assert rows_under("option") == runs
    assert rows_under("option of `Retinue`") == runtimes
    assert rows_under("field of `Agent`") == {"name", "instructions", *AGENT_OPTIONS}


SPOKEN_OF = {"retinue": retinue.Retinue, "ctx": retinue.Context, "context": retinue.Context}
FILES_AND_KEYS = {
    *("retinue.is_open", "retinue.service", "retinue.access", "retinue.missing", "context.py"),
}


def lacks(owner: object, name: str) -> bool:
    fields = getattr(owner, "__struct_fields__", ())
    return not hasattr(owner, name) and name not in fields


def test_every_name_that_a_page_gives_to_an_object_is_there() -> None:
    wrong = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if "decisions" in page.parts:
            continue
        for code in re.findall(r"`([^`\n]+)`", page.read_text()):
            for owner, name in re.findall(r"\b(Retinue|retinue|ctx|context|caller)\.(\w+)", code):
                kind = SPOKEN_OF.get(owner.lower(), object)
                is_module = owner == "retinue" and (
                    hasattr(retinue, name)
                    or importlib.util.find_spec(f"retinue.{name}") is not None
                )
                is_known = is_module or f"{owner}.{name}" in FILES_AND_KEYS
                if lacks(kind, name) and not is_known and not name.endswith("db"):
                    wrong.append(f"{page.name}: {owner}.{name}")
    assert wrong == []


def test_the_page_about_the_api_names_what_there_is() -> None:
    text = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    text = text.partition("## Every public name")[0]
    cells = [
        line.split(" | ")[0].replace("\\|", "") for line in text.splitlines() if line[:2] == "| "
    ]
    codes = [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]
    names = {re.split(r"[=(]", code.removeprefix("await "))[0] for code in codes}
    name = {*dir(retinue.Retinue), *retinue.__all__, *retinue.RunRequest.__struct_fields__}
    fields = {*Outcome.__struct_fields__, *dir(Outcome), "timeout", "families", "key"}
    fields |= {"name", *AGENT_OPTIONS, *RetinueOptions.__annotations__}
    fields |= {"store", "agents", "deps", "hooks", "follow_links"}
    assert len(names) > 60
    assert names - name - fields == set()


# find your way: a question, the file, the names in it


def answers() -> list[tuple[str, str, list[str]]]:
    """The rows of the page that leads from questions to code."""
    text = (DOCS / "explanation" / "find_your_way.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\|.*`(src|tests)/", line)]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return [(row[0], row[1].strip("`"), re.findall(r"`([^`]+)`", row[2])) for row in cells]


def defined(path: Path) -> set[str]:
    """Names that a module defines: functions, classes with their methods, constants."""
    names = set[str]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            inner = [
                n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            names |= {node.name, *inner, *(f"{node.name}.{name}" for name in inner)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


NEWCOMERS_ASK = {
    "child result parent prompt": "core/fan_results.py",
    "add provider": "models/providers.py",
    "tool call allowed denied": "core/permissions.py",
    "budget refused": "core/ledger.py",
    "run after restart": "runtime/found_runs.py",
    "routes http": "host/operations.py",
    "secret removed": "core/redaction.py",
    "command sandbox": "sandbox/bwrap.py",
    "mcp server started": "tools/mcp_client/server_lifecycle.py",
    "test agent without model": "models/scripted.py",
}
"""Ten questions of a newcomer who has only the tree and the pages: the words to look for, and the
file that answers."""


@pytest.mark.parametrize("words", NEWCOMERS_ASK)
def test_a_newcomer_finds_the_file_by_the_words_of_the_question(words: str) -> None:
    """All words are in one question of the page, and of the first three such rows one is right."""
    rows = [row for row in answers() if all(word in row[0].lower() for word in words.split())]
    assert any(row[1].endswith(NEWCOMERS_ASK[words]) for row in rows[:3]), rows


def test_the_page_that_leads_to_code_answers_many_questions() -> None:
    assert len(answers()) >= 50


@pytest.mark.parametrize("answer", answers(), ids=lambda answer: answer[0])
def test_an_answer_names_a_file_and_what_is_in_it(answer: tuple[str, str, list[str]]) -> None:
    _, file, names = answer
    path = ROOT / file
    assert path.exists()
    assert names or path.is_dir()
    if path.is_file():
        assert set(names) - defined(path) == set()


# figures


def test_the_figures_of_the_readme_are_those_of_the_last_benchmark() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    bench = json.loads((ROOT / "bench" / "results" / "latest.json").read_bytes())
    step, cancel, restart = bench["step_cost"], bench["cancel_tree"], bench["restart"]
    assert f"One step takes {step['us_at_10']:.0f} µs with 10 or with 10,000 open runs" in text
    assert round(step["us_at_10"]) == round(step["us_at_10000"])
    assert f"a tree of {cancel['runs']} runs takes {cancel['seconds']:.1f} s" in text
    assert f"200 open runs takes {1000 * restart['seconds_at_20000']:.1f} ms" in text
    assert f"uses {bench['parked_memory_sqlite']['kib']:.0f} KiB of memory" in text
    assert f"exceed their common limit by {bench['budget_cap']['over']} tokens" in text
    assert f"(Python {bench['python']})" in text
    n_faults = sum(len(plants) for plants in FAULTS.values())
    assert f"is tested with {n_faults} planted faults" in text
    assert f"are tested with {len(MUTATIONS)} planted bugs" in text


# habits


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    listed = re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE)
    assert sorted(" ".join(phony).split()) == sorted(listed)


# words


OLD_WORDS = re.compile(
    r"\b(nobody|somebody|everybody|whoever|at once|mend|lent|lend|hand(ed|s)? in|beside|"
    r"take up(?! to)|taken up|go(es|ne)? on|stands(?! for)|broken off|front door|told|hears|"
    r"on record|alike)\b",
    re.IGNORECASE,
)
"""Words that the rules for texts replace. Code may hold them."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_written_in_plain_words(page: Path) -> None:
    text = re.sub(r"<!-- (\w+) -->.*?<!-- end of \1 -->", "", prose(page), flags=re.DOTALL)
    if page in GENERATED and text == prose(page):
        return  # its words are those of the code
    words = OLD_WORDS.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", text))
    assert words == []
