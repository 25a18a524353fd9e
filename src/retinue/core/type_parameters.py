"""The type variables of the public types, and ids that remember what their run returns. They are
for type checkers: when a program runs, nothing of it is left but plain classes and strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, ParamSpec

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import TypeVar
else:
    import typing

    def TypeVar(name: str, *, default: Any = None, **options: Any) -> Any:
        """Before Python 3.13 a type variable has no default; only checkers need it."""
        return typing.TypeVar(name, **options)


T = TypeVar("T")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
R = TypeVar("R")
D = TypeVar("D")
P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True, default=str)
R_co = TypeVar("R_co", covariant=True)
D_co = TypeVar("D_co", covariant=True, default=object)
Deps_co = TypeVar("Deps_co", covariant=True, default=None)
D_contra = TypeVar("D_contra", contravariant=True, default=object)

if TYPE_CHECKING:

    class RunId(str, Generic[T_co]):
        """The id of a run that returns a `T_co`. When the program runs, an id is a plain `str`."""

        def __new__(cls, id: str, /) -> Self: ...

else:

    class RunId(str):
        """The id of a run that returns a `T_co`. When the program runs, an id is a plain `str`."""

        def __new__(cls, id: str, /) -> str:
            return str(id)

        def __class_getitem__(cls, parameter: Any) -> type[str]:
            return str
