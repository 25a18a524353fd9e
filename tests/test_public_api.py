"""The public API is the flat, sorted list retinue.__all__; everything else may change."""

import inspect

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
    bound = {
        name
        for name, value in vars(retinue).items()
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isroutine(value))
    }
    assert bound - set(retinue.__all__) == set()
