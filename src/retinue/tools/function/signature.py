"""A callable as a tool: its name, its description, and its parameters."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from retinue.errors import ConfigError
from retinue.formats.suggestion import did_you_mean
from retinue.tools.base import Context
from retinue.tools.function.docstrings import Docstring, read_docstring
from retinue.tools.function.examples import example_of
from retinue.tools.function.plain_shapes import Shape
from retinue.tools.function.record_shapes import with_default
from retinue.tools.function.records import RecordField, unresolved
from retinue.tools.function.shapes import Shapes
from retinue.tools.function.unfit import Unfit

MOST_PROBLEMS = 5
_GUESSES = {"day": "date", "date": "date", "path": "Path", "n": "int", "count": "int"}


class Parameter(NamedTuple):
    field: RecordField
    shape: Shape


class Signature:
    """`context` is the parameter that the runtime fills in, or ""; `deps_type` is what it needs;
    `schema` describes the rest."""

    deps_type: type | None

    def __init__(self, function: Callable[..., Any], name: str = "") -> None:
        body = _body(function)
        self.name = name or _name(function)
        self.is_async = inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(function)
        self.is_generator = inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body)
        doc = read_docstring(_documentation(function, body))
        self.description, self.context, self.deps_type = doc.text, "", None
        shapes = Shapes()
        self._parameters = self._read(function, _hints(self.name, body), doc, shapes)
        properties = {p.field.key: with_default(p.shape.schema, p.field) for p in self._parameters}
        required = [p.field.key for p in self._parameters if p.field.is_required]
        schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
        self.schema = shapes.whole({**schema, "additionalProperties": False})

    @property
    def names(self) -> list[str]:
        return [p.field.key for p in self._parameters]

    def arguments(self, args: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them. Raises `Unfit` with everything that is
        wrong."""
        out: dict[str, Any] = {}
        problems: list[str] = []
        for field, shape in self._parameters:
            if field.key not in args:
                if field.is_required:
                    problems.append(f"{field.key}: this parameter is required: {shape.words}")
                elif field.has_default:
                    out[field.name] = field.default
                continue
            try:
                out[field.name] = shape.read(args[field.key])
            except Unfit as error:
                problems.append(str(error.inside(field.key)))
        if len(out) + len(problems) < len(args) or not args.keys() <= set(self.names):
            problems += [self._unknown(key) for key in args if key not in self.names]
        if problems:
            text = "; ".join(problems[:MOST_PROBLEMS])
            stop = "" if text.endswith("?") else "."
            raise Unfit(f"{text}{stop} Example: {self._example()}")
        return out

    def _unknown(self, key: str) -> str:
        hint = did_you_mean(key, self.names)
        names = ", ".join(self.names) or "none"
        return f"{key}: there is no such parameter" + (
            f".{hint}" if hint else f"; the parameters are {names}"
        )

    def _example(self) -> str:
        value = example_of(self.schema, self.schema.get("$defs", {}))
        return msgspec.json.encode(value).decode()

    def _read(
        self, function: Callable[..., Any], hints: dict[str, Any], doc: Docstring, shapes: Shapes
    ) -> Sequence[Parameter]:
        bound = function.keywords if isinstance(function, functools.partial) else {}
        out: list[Parameter] = []
        for name, parameter in inspect.signature(function).parameters.items():
            if name in bound:
                continue
            if parameter.kind in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
                parameter.POSITIONAL_ONLY,
            ):
                raise self.wrong(f"parameter {name!r} cannot be passed by name")
            hint = hints.get(name)
            if hint is None and name == "self" and not out:
                raise self.wrong(
                    "it is a method of no object yet",
                    f"Leave out @tool, and write tool(thing.{self.name}) of an object.",
                )
            if hint is None:
                raise self.wrong(
                    f"parameter {name!r} has no type",
                    f"Write, for example, {name}: {_guess(name, parameter.default)}.",
                )
            if _is_context(hint):
                if self.context:
                    raise self.wrong(
                        f"parameters {self.context!r} and {name!r} are both a Context", "Leave one."
                    )
                self.context, self.deps_type = name, _deps_type(hint)
                continue
            out.append(self._parameter(name, hint, parameter.default, doc, shapes))
        return out

    def _parameter(
        self, name: str, hint: Any, default: Any, doc: Docstring, shapes: Shapes
    ) -> Parameter:
        if type(default).__name__ == "FieldInfo":
            # `n: int = Field(ge=1)`, as people write it who use pydantic.
            hint = typing.Annotated[hint, default]
            default = inspect.Parameter.empty if default.is_required() else default.get_default()
        try:
            shape = shapes.of(hint)
        except ConfigError as error:
            raise self.wrong(f"parameter {name!r}: {error}") from None
        if name in doc.parameters and "description" not in shape.schema:
            shape = shapes.described(shape, doc.parameters[name])
        is_required = default is inspect.Parameter.empty
        return Parameter(
            RecordField(name, name, hint, is_required, not is_required, default), shape
        )

    def wrong(self, problem: str, fix: str = "") -> ConfigError:
        """The mistake, with the name of the tool."""
        return ConfigError(f"Tool {self.name!r}: {problem}.{f' {fix}' if fix else ''}")


def _body(function: Callable[..., Any]) -> Any:
    """What carries the annotations: the function behind a partial, the `__call__` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def _name(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", "")
    return name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(function).__name__).lower()


def _documentation(function: Callable[..., Any], body: Any) -> str:
    """The docstring of an object's `__call__`, or of its class."""
    is_object = not inspect.isroutine(function) and not isinstance(function, functools.partial)
    doc = body.__doc__ or (type(function).__doc__ if is_object else "")
    return inspect.cleandoc(doc or "")


def _hints(tool: str, body: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(body, localns={"Context": Context}, include_extras=True)
    except NameError as error:
        raise ConfigError(f"Tool {tool!r}: {unresolved('its function', error)}.") from None


def _is_context(hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    if kind in (typing.Union, types.UnionType, typing.Annotated):
        return any(_is_context(part) for part in typing.get_args(hint))
    return isinstance(kind, type) and issubclass(kind, Context)


def _deps_type(hint: Any) -> type | None:
    """What `Context[Shop]` needs; a plain `Context` needs nothing."""
    needs = next(iter(typing.get_args(hint)), None)
    return needs if isinstance(needs, type) and needs not in (object, type(None)) else None


def _guess(name: str, default: Any) -> str:
    """A type that the parameter may well have."""
    if default is not inspect.Parameter.empty and default is not None:
        return type(default).__name__
    return _GUESSES.get(name, "str")
