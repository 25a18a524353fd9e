"""Sizes, names and docstrings. The direction of imports is checked by import-linter
(pyproject.toml)."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PUBLIC_EVENTS = SOURCE / "retinue" / "events.py"
MAX_FILE_LINES = 450
USUAL_FILE_LINES = 250
MAX_FUNCTION_LINES = 60
MAX_EXAMPLE_LINES = 40
MAX_NAMES_IN_A_TUPLE = 3
NOT_NOUNS = {
    *("asked", "begun", "broken", "came", "caught", "chosen", "done", "drawn", "found", "given"),
    *("gone", "got", "heard", "held", "kept", "left", "lent", "lost", "made", "meant", "said"),
    *("seen", "shown", "spoken", "taken", "told", "took", "wanted", "written", "wrote"),
}
"""Participles that do not say what is in a variable: its name is the noun that it holds."""


def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def all_code() -> list[Path]:
    """Ours: no source trees that tests explore, and no programs that are wrong on purpose."""
    return [
        path
        for top in ("src", "tests", "bench", "docs", "examples")
        for path in python_files(ROOT / top)
        if not {"trees", "fixtures"} & set(path.parts) and path.parent.name != "typing"
    ]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def n_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def too_long(paths: list[Path], limit: int) -> list[str]:
    return [
        f"{name_of(path)}: {n} lines, at most {limit}"
        for path in paths
        if (n := n_lines(path)) > limit
    ]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_there_is_source_to_check() -> None:
    assert python_files(SOURCE)


def test_a_source_file_stays_small() -> None:
    assert too_long(python_files(SOURCE), MAX_FILE_LINES) == []


def test_nine_of_ten_source_files_fit_on_a_few_screens() -> None:
    files = python_files(SOURCE)
    long = too_long(files, USUAL_FILE_LINES)
    assert len(long) <= len(files) / 10, long


def test_a_function_stays_small() -> None:
    long = [
        f"{name_of(path)}:{function.lineno} {function.name}: {n} lines, at most "
        f"{MAX_FUNCTION_LINES}"
        for path in python_files(SOURCE)
        for function in functions(path)
        if (n := (function.end_lineno or function.lineno) - function.lineno + 1)
        > MAX_FUNCTION_LINES
    ]
    assert long == []


def test_each_module_states_its_idea_in_a_docstring() -> None:
    silent = [
        name_of(path)
        for path in python_files(SOURCE)
        if not ast.get_docstring(ast.parse(path.read_bytes()))
    ]
    assert silent == []


def test_processes_start_in_two_places() -> None:
    """A start that is cancelled halfway must end what it started (`child_process.start`)."""
    starts = re.compile(r"create_subprocess_(exec|shell)|\.subprocess_(exec|shell)")
    users = {path.name for path in python_files(SOURCE) if starts.search(path.read_text())}
    assert users == {"child_process.py", "process.py"}


def test_an_example_fits_on_a_screen() -> None:
    assert too_long(sorted((ROOT / "examples").glob("*.py")), MAX_EXAMPLE_LINES) == []


def test_no_two_modules_have_one_name() -> None:
    """But ports (`base`), commands, which are named after what is typed, and the public events,
    whose module is part of the API."""
    files = [
        path
        for path in python_files(SOURCE)
        if path.parent.name != "commands" and path != PUBLIC_EVENTS
    ]
    names = Counter(
        path.stem for path in files if path.stem not in ("__init__", "__main__", "base")
    )
    assert [name for name, n in names.items() if n > 1] == []


def test_no_two_public_classes_have_one_name() -> None:
    classes = Counter(
        node.name
        for path in python_files(SOURCE)
        for node in ast.parse(path.read_bytes()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(classes) > 500 and [name for name, n in classes.items() if n > 1] == []


def bound(function: ast.AST) -> Iterator[tuple[int, str]]:
    """The names that a function binds, its parameters included, with their lines."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            yield node.lineno, node.name


def hard_to_read(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Conditional expressions with another one in them, and assignments to more names than can be
    read in pairs, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            if any(isinstance(part, ast.IfExp) for part in (node.test, node.body, node.orelse)):
                yield node.lineno, "a chained condition"
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                n = len(target.elts) if isinstance(target, ast.Tuple | ast.List) else 1
                if n > MAX_NAMES_IN_A_TUPLE:
                    yield node.lineno, f"{n} names in one assignment"


def test_a_local_variable_is_a_noun() -> None:
    wrong = {
        f"{name_of(path)}:{line}: {name}"
        for path in all_code()
        for function in functions(path)
        for line, name in bound(function)
        if name in NOT_NOUNS
    }
    assert sorted(wrong) == []


def test_no_condition_is_chained_and_no_assignment_has_more_than_three_names() -> None:
    wrong = [
        f"{name_of(path)}:{line}: {what}"
        for path in all_code()
        for line, what in hard_to_read(ast.parse(path.read_bytes()))
    ]
    assert wrong == []


def test_a_check_of_names_and_forms_finds_what_it_is_for() -> None:
    source = ast.parse(
        "def f(told):\n    a, b, c, d = told\n    return a if b else c if d else 0\n"
    )
    assert (2, "a") in bound(source) and (1, "told") in bound(source)
    assert sorted(line for line, _ in hard_to_read(source)) == [2, 3]
    assert not list(hard_to_read(ast.parse("a, b, c = d\ne = a if b else c")))
