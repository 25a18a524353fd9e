"""Public verbs check their arguments by their own annotations before anything is done: a wrong one
is refused with the name of the verb and of the parameter."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from retinue.tools.option_values import check_value
from retinue.tools.start_options import check_known

C = TypeVar("C", bound=type)
SAID_BELOW = ("state", "on_limit")
"""Parameters whose verbs know more to say about a wrong value."""


def checks_arguments(cls: C) -> C:
    """Every public function of the class refuses arguments that are not of their types."""
    for name, function in list(vars(cls).items()):
        if inspect.isfunction(function) and not name.startswith("_"):
            setattr(cls, name, _checking(function))
    return cls


class _Parameters(NamedTuple):
    """Those of one verb without `self`: the names of the positional ones, the types of those whose
    type is known, the name of what `*` takes, and whether there are `**options`."""

    names: Sequence[str]
    kinds: Mapping[str, Any]
    known: Sequence[str]
    rest: str
    has_options: bool


def _checking(function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(self: Any, *args: Any, **options: Any) -> Any:
            _check(function, args, options)
            return await function(self, *args, **options)

        return awaited

    @functools.wraps(function)
    def called(self: Any, *args: Any, **options: Any) -> Any:
        _check(function, args, options)
        return function(self, *args, **options)

    return called


def _check(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> None:
    verb, own = f"{function.__name__}()", _parameters(function)
    for name, value in zip(own.names, args, strict=False):
        if name in own.kinds:
            check_value(verb, name, value, own.kinds[name])
    if own.rest in own.kinds:
        for value in args[len(own.names) :]:
            check_value(verb, own.rest.removesuffix("s"), value, own.kinds[own.rest])
    if not own.has_options:
        check_known(verb, options, own.known)
    for name, value in options.items():
        if name in own.kinds:
            check_value(verb, name, value, own.kinds[name])


@functools.cache
def _parameters(function: Callable[..., Any]) -> _Parameters:
    all_of_them = list(inspect.signature(function).parameters.values())[1:]
    names = [p.name for p in all_of_them if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    kinds = {
        p.name: kind
        for p in all_of_them
        if p.kind is not p.VAR_KEYWORD
        and p.name not in SAID_BELOW
        and (kind := _resolved(function, p.annotation)) is not None
    }
    return _Parameters(
        names,
        kinds,
        [p.name for p in all_of_them if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)],
        next((p.name for p in all_of_them if p.kind is p.VAR_POSITIONAL), ""),
        any(p.kind is p.VAR_KEYWORD for p in all_of_them),
    )


def _resolved(function: Callable[..., Any], annotation: Any) -> Any:
    """The type that an annotation names; None for one that is there for type checkers only."""
    holder = type("holder", (), {"__annotations__": {"value": annotation}})
    try:
        return typing.get_type_hints(holder, globalns=function.__globals__)["value"]
    except NameError:
        return None
