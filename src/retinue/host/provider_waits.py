"""A run that waits for its provider: the provider's answer, and the time of the next try. Only
plain values, so that listings need nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from retinue.formats.safe_text import one_line

if TYPE_CHECKING:
    from retinue.core.spec import RunSpec
    from retinue.core.state import Run
    from retinue.core.values import ProviderTrouble
    from retinue.runtime.held_calls import HeldCall

ATTEMPTS = 6
"""How often a call is tried quickly, if the request sets nothing else."""
NO_KEY = "no_key"
"""Why a run sleeps that nothing was asked for: its host was started without its key."""
NO_CREDIT, BAD_KEY, LIMITED = "quota", "auth", "rate_limit"


class ProviderWait(NamedTuple):
    """`answer` is an HTTP status, or a word such as `refused`; `retry_at` is in milliseconds since
    1970. Of `tries` that have failed, after `of` the run is patient and tries seldom. One that is
    held for what others were answered has not tried."""

    kind: str
    provider: str = ""
    answer: str = ""
    host: str = ""
    retry_at: int | None = None
    tries: int = 0
    of: int = ATTEMPTS

    @property
    def state(self) -> str:
        """What screens tell apart: `rate_limited` or `retrying`. An account that is refused is not
        tried again until the user changes something: the run waits."""
        if self.kind in (BAD_KEY, NO_CREDIT):
            return "waiting"
        return "rate_limited" if self.kind == LIMITED else "retrying"

    @property
    def who(self) -> str:
        """`anthropic 429`, `ollama refused`."""
        name = one_line(self.provider, 40) or "provider"
        if self.kind == BAD_KEY:
            return f"{name} rejected the key" + (f" ({self.answer})" if self.answer else "")
        if self.kind == NO_CREDIT:
            return f"{name}: no credit left"
        return f"{name} {one_line(self.answer, 40) or self.kind.replace('_', ' ')}"

    def cell(self, now: int) -> str:
        """For a row: `anthropic 429: 24 s, 2 of 5`."""
        if self.kind == BAD_KEY:
            return self.who
        details = ", ".join(filter(None, (self._left(now), self._try)))
        return f"{self.who}: {details}" if details else self.who

    def sentence(self, now: int) -> str:
        """For a line: `anthropic 429, next try in 24 s, 2 of 5`."""
        name = one_line(self.provider, 40) or "The provider"
        variables = key_names(self.provider)
        if self.kind == BAD_KEY:
            check = f" Check {variables}." if variables else ""
            return f"{name} rejected the API key ({self.answer or '401'}).{check}"
        if self.kind == NO_CREDIT:
            return f"The account of {name} has no credit left ({self.answer or '402'})."
        cause = f"{self.host or name} refused the connection" if self.is_refused else self.who
        wait_text = self._left(now)
        when = f"next try in {wait_text}" if wait_text else ""
        if wait_text == "now":
            when = "trying again now"
        return ", ".join(filter(None, (cause, when, self._try)))

    @property
    def is_refused(self) -> bool:
        """Whether no one listens where the provider should be."""
        return self.answer == "refused"

    def _left(self, now: int) -> str:
        if self.retry_at is None:
            return ""
        seconds = -(-(self.retry_at - now) // 1000)
        if seconds <= 0:
            return "now"
        if seconds < 100:
            return f"{seconds} s"
        if seconds < 3_600:
            return f"{seconds // 60}m {seconds % 60:02}s"
        return f"{seconds // 3_600}h {seconds % 3_600 // 60:02}m"

    @property
    def _try(self) -> str:
        if not self.tries:
            return ""
        n = self.tries + 1
        return f"{n} of {self.of}" if n <= self.of else f"try {n}"


def of_run(run: Run, spec: RunSpec) -> ProviderWait | None:
    """What a run waits for, as it is on record."""
    from retinue.core.state import Thinking

    state = run.state
    if not isinstance(state, Thinking) or state.retry_at is None or not state.waits_kind:
        return None
    attempts = spec.request.retry.attempts
    return _wait(state.waits_kind, state.trouble, spec.model, state.retry_at, state.tries, attempts)


def of_held(call: HeldCall, model: str) -> ProviderWait:
    """What a call waits for that has not left yet."""
    return _wait(call.kind, call.trouble, model, call.retry_at)


def _wait(
    kind: str,
    trouble: ProviderTrouble | None,
    model: str,
    retry_at: int | None,
    tries: int = 0,
    of: int = ATTEMPTS,
) -> ProviderWait:
    if trouble is None:
        return ProviderWait(kind, provider_of(model), "", "", retry_at, tries, of)
    name = trouble.provider or provider_of(model)
    return ProviderWait(kind, name, trouble.answer, trouble.host, retry_at, tries, of)


def of_record(state: Mapping[str, Any], spec: Mapping[str, Any]) -> ProviderWait | None:
    """The same from the JSON of a record: its run's state, and its spec."""
    if state.get("retry_at") is None or not state.get("waits_kind"):
        return None
    trouble = state.get("trouble") or {}
    return ProviderWait(
        kind=state["waits_kind"],
        provider=trouble.get("provider") or provider_of(spec.get("model", "")),
        answer=trouble.get("answer", ""),
        host=trouble.get("host", ""),
        retry_at=state["retry_at"],
        tries=state.get("tries", 0),
        of=spec["order"].get("retry", {}).get("attempts", ATTEMPTS),
    )


def provider_of(model: str) -> str:
    return model.partition(":")[0] if ":" in model else ""


def key_names(provider: str) -> str:
    """The variables that the API key of a provider can be in: `A or B`, "" when it needs none."""
    from retinue.models.providers import PROVIDERS

    provider_entry = PROVIDERS.get(provider)
    return " or ".join(provider_entry.keys) if provider_entry is not None else ""


def lack_of(model: str, environ: Mapping[str, str]) -> str:
    """Why a host cannot continue a run: `No API key for anthropic. Set ANTHROPIC_API_KEY`."""
    from retinue.models.providers import PROVIDERS

    for name in (provider_of(link.strip()) for link in model.split("|")):
        entry = PROVIDERS.get(name)
        if entry is not None and entry.keys and not entry.key(environ):
            return f"No API key for {entry.name}. Set {entry.keys[0]}"
    return "Its agent could not be built again"


def url_names(provider: str) -> str:
    """The variables that the address of a provider can be in, "" when it is fixed."""
    from retinue.models.providers import PROVIDERS

    provider_entry = PROVIDERS.get(provider)
    return " or ".join(provider_entry.urls) if provider_entry is not None else ""
