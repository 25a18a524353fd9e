"""The port to a model: one whole conversation in, one whole reply out, with deltas on the way for those who watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from retinue.core.effects import Purpose
from retinue.core.values import Message, ModelInfo, Reply, ToolSchema


@dataclass(frozen=True, slots=True)
class Request:
    """Everything a model needs for one reply. `messages` is valid for every provider: each call has its result.

    `tools` may be called now; `declared` stays the same through all turns of a run and through its forks, so that the
    prefix of their prompts does: what is declared and not lent is refused when it is called.
    """

    run: str
    root: str
    path: str
    agent: str
    model: str
    turn: int
    attempt: int
    purpose: Purpose
    instructions: str
    messages: Sequence[Message]
    tools: tuple[ToolSchema, ...]
    max_output: int
    key: str
    declared: tuple[ToolSchema, ...] = ()


class Models(Protocol):
    """Models by name. `offered` are those that runs may ask for although no agent names them; `resolve` says what a
    name that it `knows` stands for."""

    @property
    def offered(self) -> Sequence[str]: ...

    def knows(self, name: str) -> bool: ...

    def resolve(self, name: str) -> str: ...

    def find(self, name: str) -> Model: ...

    async def close(self) -> None: ...


class Model(Protocol):
    """Contract: `complete` returns one reply or raises a `ModelError`; a cancelled call spends nothing more. `emit`
    takes text as it comes and may be ignored. A model that has `exact = True` vouches for the types in its replies;
    those of others are checked."""

    info: ModelInfo

    async def complete(self, request: Request, emit: Callable[[str], None]) -> Reply: ...
