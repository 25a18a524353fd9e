"""Reads typed fields from an agent file: a field of the wrong type is reported with its line and
ignored."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from retinue.agent_files.agent_spec import PermissionMode, Severity, hint_at
from retinue.agent_files.field_values import BUDGET, MODES, ON_LIMIT
from retinue.agent_files.frontmatter import kind_of
from retinue.agent_files.tool_aliases import split_names
from retinue.agent_files.yaml_builder import AgentDocument, Hint
from retinue.core.values import Budget
from retinue.formats.durations import seconds
from retinue.formats.safe_text import clean

_YES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Fields:
    """Reads keys and remembers which were read: what is left at the end is kept as it is."""

    def __init__(
        self,
        document: AgentDocument,
        data: Mapping[str, Any] | None = None,
        at: tuple[str, ...] = (),
    ) -> None:
        self.document = document
        self.data = document.data if data is None else data
        self.at = at
        self.taken: set[str] = set()

    def line(self, *keys: str) -> int:
        path = (*self.at, *keys)
        while path:
            if number := self.document.lines.get(path):
                return number
            path = path[:-1]
        return 0

    def complain(
        self, key: str, message: str, severity: Severity = "warning", hint: Hint = ""
    ) -> None:
        self.document.complain(message, self.line(key), severity, hint)

    def wrong(self, key: str, expectation: str, value: Any, severity: Severity = "warning") -> None:
        example = f" ({value!r:.60})" if isinstance(value, str | int | float) else ""
        self.complain(
            key,
            f"{key} must be {expectation}, not {kind_of(value)}{example}; it is ignored",
            severity,
        )

    def raw(self, *keys: str) -> tuple[str, Any]:
        """The value of the first of some names for the same thing; the others count as read."""
        self.taken.update(keys)
        there = [k for k in keys if self.data.get(k) is not None]
        for other in there[1:]:
            self.complain(other, f"{other} means the same as {there[0]}; only {there[0]} was read")
        return (there[0], self.data[there[0]]) if there else (keys[0], None)

    def text(self, *keys: str) -> str:
        key, value = self.raw(*keys)
        if value is None:
            return ""
        if isinstance(value, str):
            return clean(value).strip()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        self.wrong(key, "a text", value)
        return ""

    def flag(self, *keys: str, unclear: bool = False) -> bool:
        """`unclear` is what a value counts as that is neither true nor false."""
        key, value = self.raw(*keys)
        if isinstance(value, str):
            value = _YES.get(value.strip().lower(), value)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.wrong(key, "true or false", value)
        return unclear

    def whole(self, *keys: str, least: int = 1) -> int | None:
        key, value = self.raw(*keys)
        number = _number(value)
        if value is None or (
            number is not None and number == int(number) and least <= number < 1 << 53
        ):
            return None if number is None else int(number)
        self.wrong(key, f"a whole number of at least {least}", value)
        return None

    def number(self, *keys: str, least: float = 0.0) -> float | None:
        key, value = self.raw(*keys)
        number = _number(value)
        if value is None or (number is not None and number >= least):
            return number
        self.wrong(key, f"a number of at least {least:g}", value)
        return None

    def seconds(self, *keys: str) -> float | None:
        """A number of seconds, or a text like 90s, 10m or 2h."""
        key, value = self.raw(*keys)
        if value is None:
            return None
        number = _number(value)
        if isinstance(value, str) and number is None:
            with contextlib.suppress(ValueError):
                number = seconds(value)
        if number is not None and number > 0:
            return number
        self.wrong(key, "seconds, or a time like 90s, 10m or 2h", value)
        return None

    def names(self, *keys: str) -> list[str] | None:
        """A list of texts, or one text with commas or spaces. None: omitted. A list of anything
        else is an error, since what it was meant to omit cannot be known."""
        key, value = self.raw(*keys)
        if value is None:
            if any(k in self.data for k in keys):
                self.complain(key, f"{key} has no value and is ignored", "note")
            return None
        if isinstance(value, str):
            return split_names(clean(value))
        if isinstance(value, list):
            bad = [v for v in value if not isinstance(v, str)]
            if not bad:
                return [clean(v).strip() for v in value if v.strip()]
            value = bad[0]
        self.wrong(key, "a list of names", value, "error")
        return []

    def mapping(self, *keys: str) -> dict[str, Any]:
        key, value = self.raw(*keys)
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.wrong(key, "keys and values", value)
        return {}

    def choice(self, allowed: Iterable[str], *keys: str) -> str:
        key = self.raw(*keys)[0]
        word = self.text(*keys)
        by_low = {a.lower(): a for a in allowed}
        if not word or word.lower() in by_low:
            return by_low.get(word.lower(), "")
        hint = hint_at(word, by_low.values())
        self.complain(
            key,
            f"{key} is {word[:60]!r}, which is not one of {', '.join(by_low.values())}",
            "warning",
            hint,
        )
        return ""

    def model(self, *keys: str) -> str | None:
        """None is the model of the run that starts the agent."""
        key, value = self.raw(*keys)
        if isinstance(value, list) and value and all(isinstance(v, str) for v in value):
            self.complain(key, f"{key} names several models; the first is used", "note")
            return clean(value[0]).strip() or None
        word = self.text(*keys)
        return None if word.lower() in ("", "inherit") else word

    def permission_mode(self, *keys: str) -> PermissionMode | None:
        word = self.choice(MODES, *keys)
        return MODES[word] if word else None

    def budget(self, *keys: str) -> Budget:
        """Amounts by name; only what can be understood is a limit, and what cannot be is an
        error."""
        key = self.raw(*keys)[0]
        data = self.mapping(*keys)
        inner = Fields(self.document, data, (*self.at, key))
        out: dict[str, Any] = {}
        before = len(self.document.complaints)
        for name, ours in BUDGET.items():
            if ours == "seconds":
                out[ours] = inner.seconds(name)
            else:
                out[ours] = inner.number(name) if ours == "usd" else inner.whole(name, least=0)
        if on_limit := inner.choice(ON_LIMIT, "on_limit"):
            out["on_limit"] = on_limit
        budget_keys = (*BUDGET, "on_limit")
        for name in inner.rest(budget_keys, quiet=()):
            self.complain(
                key, f"{key} has no {name[:80]!r}", "error", partial(hint_at, name, budget_keys)
            )
        if len(self.document.complaints) > before or (not data and self.data.get(key) is not None):
            self.complain(
                key,
                f"{key} could not be fully read. The agent is disabled, so that it does "
                "not run without its limits",
                "error",
            )
        return Budget(**out)

    def schema(self, *keys: str) -> dict[str, Any] | None:
        key, value = self.raw(*keys)
        if isinstance(value, str) and value.lstrip().startswith("{"):
            from retinue.core.arguments import BadArguments, parse

            try:
                value = parse(value)
            except BadArguments as error:
                self.complain(key, f"{key}: {error}", "error")
                return None
        if value is None or isinstance(value, dict):
            return value
        self.wrong(key, "a JSON schema", value, "error")
        return None

    def rest(self, known_keys: Iterable[str], quiet: Iterable[str]) -> dict[str, Any]:
        """What was not read. `quiet` keys are known to mean nothing here; others are reported."""
        out: dict[str, Any] = {}
        silent = set(quiet)
        for key, value in self.data.items():
            if key in self.taken:
                continue
            out[key] = value
            if key not in silent:
                hint = partial(hint_at, key, (*known_keys, *silent))
                self.complain(
                    key,
                    f"unknown key {key[:80]!r}; it was kept and is ignored",
                    "warning",
                    hint,
                )
        return out


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value.replace("_", "")) if len(value) < 40 else None
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
