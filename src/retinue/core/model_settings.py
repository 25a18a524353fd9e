"""Settings of a model request that an agent or a run can choose."""

from __future__ import annotations

from typing import Any, Literal

from msgspec.structs import asdict, force_setattr

from retinue.core.values import Value
from retinue.errors import ConfigError

Effort = Literal["minimal", "low", "medium", "high"]
EFFORTS = ("minimal", "low", "medium", "high")
RESERVED = frozenset(
    {"model", "messages", "input", "contents", "stream", "tools", "n", "best_of"}
    | {"candidateCount", "candidate_count", "max_output", "maxOutputTokens", "max_tokens"}
    | {"max_completion_tokens", "max_output_tokens"}
)
"""What `extra` may not carry: it would change what a call can cost, or how its answer is read."""


class ModelSettings(Value):
    """How a model is asked; None leaves a thing to the provider. What a model does not take is a
    `ConfigError` when the agent is first used.

    `thinking` is on, off, or how many tokens. `tool_choice` is `auto`, `any` (a call in every
    reply), `none`, or the name of a tool. `extra` are fields that go to the provider as they
    are."""

    max_output: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    effort: Effort | None = None
    thinking: bool | int | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    extra: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.stop is not None:
            words = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
            force_setattr(self, "stop", words)
            if not words or not all(isinstance(word, str) and word for word in words):
                raise wrong("stop", self.stop, "one or more texts that are not empty")
        _check_number("max_output", self.max_output, 1, 1 << 24, int)
        _check_number("temperature", self.temperature, 0, 2, float)
        _check_number("top_p", self.top_p, 0, 1, float)
        _check_number("seed", self.seed, -(1 << 63), (1 << 63) - 1, int)
        if not isinstance(self.thinking, bool):
            _check_number("thinking", self.thinking, 1, 1 << 24, int)
        if self.effort is not None and self.effort not in EFFORTS:
            raise wrong("effort", self.effort, "minimal, low, medium or high")
        if self.parallel_tool_calls not in (None, True, False):
            raise wrong("parallel_tool_calls", self.parallel_tool_calls, "True or False")
        if self.extra is not None and not isinstance(self.extra, dict):
            raise wrong("extra", self.extra, "a dict of fields")
        if self.tool_choice is not None and not (
            isinstance(self.tool_choice, str) and self.tool_choice
        ):
            raise wrong("tool_choice", self.tool_choice, "auto, any, none, or the name of a tool")
        if odd := next((name for name in _names(self.extra or {}) if name in RESERVED), ""):
            raise ConfigError(
                f"ModelSettings: extra cannot set {odd!r}, on which budgets and the reading of "
                "replies depend. Use max_output, tools and model instead."
            )

    @property
    def set_fields(self) -> dict[str, Any]:
        """What is set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def over(self, base: ModelSettings) -> ModelSettings:
        """These settings, and where they say nothing those of `base`."""
        return ModelSettings(**{**base.set_fields, **self.set_fields})


def wrong(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"ModelSettings: {name}={value!r} is not possible. It is {expected}.")


def _check_number(name: str, value: Any, least: float, most: float, kind: type) -> None:
    if value is None:
        return
    kinds = (int, float) if kind is float else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        words = "a whole number" if kind is int else "a number"
        raise wrong(name, value, f"{words} from {least} to {most}")


def _names(extra: dict[str, Any]) -> list[str]:
    """The fields of `extra`, and those one level down."""
    inner = [name for value in extra.values() if isinstance(value, dict) for name in value]
    return [*extra, *inner]


NO_SETTINGS = ModelSettings()
