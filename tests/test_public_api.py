"""The public API is the flat, sorted list retinue.__all__; everything else may change."""

import ast
import inspect
from pathlib import Path

import retinue


def order(name: str) -> tuple[bool, bool, str]:
    """Constants, classes, the rest: the order in which `make fix` sorts the list."""
    return (not name.isupper(), not name[0].isupper(), name)


def test_the_list_is_sorted() -> None:
    assert list(retinue.__all__) == sorted(retinue.__all__, key=order)


def test_the_list_has_no_duplicates() -> None:
    assert len(retinue.__all__) == len(set(retinue.__all__))


def test_each_listed_name_exists() -> None:
    assert [name for name in retinue.__all__ if not hasattr(retinue, name)] == []


def test_each_public_class_and_function_is_listed() -> None:
    names = {
        name
        for name, value in vars(retinue).items()
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isroutine(value))
    }
    assert names - set(retinue.__all__) == set()


def test_each_name_that_is_imported_for_type_checkers_is_the_one_that_users_get() -> None:
    tree = ast.parse(Path(retinue.__file__).read_text())
    block = next(
        n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    )
    homes = {a.name: n.module for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert homes == retinue._HOME_OF
    assert set(homes) == set(retinue.__all__)
