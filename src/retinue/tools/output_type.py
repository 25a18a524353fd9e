"""The output type of an agent: a type, a choice of types, or a JSON schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, overload

from retinue.core.type_parameters import T2, T3, T, T_co
from retinue.errors import ConfigError
from retinue.tools.function.results import result_shape
from retinue.tools.function.unfit import Unfit
from retinue.tools.option_values import shown

_EXTENSIONS = "typing_extensions"


class Output(Generic[T_co]):
    """A result type that is more than one class. Made by `one_of` and `json_schema`: a result is of
    the first of `types` that it fits, or matches `schema`."""

    def __init__(self, types: tuple[Any, ...], schema: Mapping[str, Any] | None = None) -> None:
        self.types, self.schema = types, schema

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Output):
            return NotImplemented
        return (self.types, self.schema) == (other.types, other.schema)

    def __hash__(self) -> int:
        return hash(self.types)

    def __repr__(self) -> str:
        names = ", ".join(getattr(t, "__name__", repr(t)) for t in self.types)
        return f"one_of({names})" if self.schema is None else f"json_schema({self.schema!r})"


@overload
def one_of(a: type[T], b: type[T2], /) -> Output[T | T2]: ...
@overload
def one_of(a: type[T], b: type[T2], c: type[T3], /) -> Output[T | T2 | T3]: ...
def one_of(*types: Any) -> Output[Any]:
    """A result that is of one of these types; the first that it fits."""
    if len(types) < 2:
        raise ConfigError("one_of() takes two types or more. For one type, write output=Type.")
    return Output(types)


def json_schema(schema: Mapping[str, Any], /) -> Output[dict[str, Any]]:
    """A result that is described by a JSON schema."""
    if not isinstance(schema, Mapping):
        raise ConfigError(f"json_schema() takes a JSON schema as a dict, not {schema!r}.")
    return Output((), dict(schema))


def check_output(owner: str, output: Any) -> None:
    """Refuses what looks like a type of results and is none."""
    if isinstance(output, Mapping):
        raise ConfigError(f"{owner}: output is a dict. Write output=json_schema({{...}}).")
    if isinstance(output, (tuple, list)):
        raise ConfigError(f"{owner}: output is a {type(output).__name__}. Write one_of(A, B).")
    for kind in output.types if isinstance(output, Output) else (output,):
        if not _is_type(kind):
            raise ConfigError(
                f"{owner}: output is a type, such as Report, not {shown(kind)}.", field="output"
            )


def _is_type(thing: object) -> bool:
    """Whether it can be used in an annotation: a class, or what `typing` makes of classes."""
    of = type(thing).__module__
    return thing is None or isinstance(thing, type) or of in ("typing", "types", _EXTENSIONS)


def output_checker(output: Any) -> tuple[Callable[[Any], str], dict[str, Any]]:
    """A function that says what is wrong with a result, and the schema that the model is shown."""
    if isinstance(output, Output) and output.schema is not None:
        return _schema_checker(dict(output.schema))

    def check_type(value: Any) -> str:
        try:
            convert_output(output, value)
        except ValueError as error:
            return str(error)
        return ""

    types = output.types if isinstance(output, Output) else (output,)
    schemas = [_type_schema(t) for t in types]
    return check_type, schemas[0] if len(schemas) == 1 else _any_of(schemas)


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    for schema in schemas:
        definitions |= schema.pop("$defs", {})
    out: dict[str, Any] = {"anyOf": schemas}
    return {**out, "$defs": definitions} if definitions else out


def _schema_checker(schema: dict[str, Any]) -> tuple[Callable[[Any], str], dict[str, Any]]:
    import jsonschema  # type: ignore[import-untyped]

    kind = jsonschema.validators.validator_for(schema)
    try:
        kind.check_schema(schema)
    except jsonschema.exceptions.SchemaError as error:
        wrong = f"{error.json_path}: {error.message}"
        raise ConfigError(f"json_schema() takes a valid JSON schema. {wrong}.") from None
    validator = kind(schema)

    def check_schema(value: Any) -> str:
        error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        return "" if error is None else f"{error.json_path}: {error.message}"

    return check_schema, schema


def convert_output(output: Any, data: Any) -> Any:
    """A result as the type that its agent names; `ValueError` says why it is none."""
    if output is None:
        return data
    if not isinstance(output, Output):
        return _convert(output, data)
    if output.schema is not None:
        return data
    wrong = []
    for type_ in output.types:
        try:
            return _convert(type_, data)
        except ValueError as error:
            wrong.append(f"as {getattr(type_, '__name__', type_)}: {error}")
    raise ValueError("; ".join(wrong))


def _convert(type_: Any, data: Any) -> Any:
    try:
        return result_shape(type_).read(data)
    except Unfit as error:
        raise ValueError(str(error)) from None


def _type_schema(type_: Any) -> dict[str, Any]:
    return {k: v for k, v in result_shape(type_).schema.items() if k != "title"}
