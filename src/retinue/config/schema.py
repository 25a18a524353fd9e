"""The configuration as a value: every setting with its type, default and description. What each
setting means, what it is called on the command line and in the environment, and who may set it, is
said where it is declared; the page in docs/ and `retinue config` are made from that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from retinue.config import value_checks as checks
from retinue.core.values import Value
from retinue.formats.dispatch_address import dispatch

Names = tuple[str, ...]
_NONE: Any = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class About:
    """What is known of a setting. `variable` is that of the environment ("" for none; by default it
    follows from the flag or the key), and `old_variable` is read if the first is not set. `scope`
    "user": a project's file may not set it. `joins`: lists of several files are put together, so
    that no file removes what another says. `check` returns the value to use, or raises
    `ValueError`."""

    text: str
    flag: str = ""
    variable: str | None = None
    old_variable: str = ""
    scope: Literal["any", "user"] = "any"
    joins: bool = False
    check: Callable[[Any], Any] | None = None
    splits: Literal["commas", "paths", "rules"] = "commas"


class ModelsSection(Value):
    """Which models are asked."""

    default: Annotated[
        str,
        About(("default model for agents that do not set one"), flag="--model", check=checks.model),
    ] = ""
    aliases: Annotated[
        dict[str, str], About("aliases: short names for models", check=checks.model)
    ] = _NONE
    fallbacks: Annotated[
        dict[str, Names],
        About(
            "fallback chains: the models to try for a name, in order",
            check=checks.model,
        ),
    ] = _NONE
    allow: Annotated[
        dict[str, Names], About("models of a provider that may be used, as patterns")
    ] = _NONE
    offered: Annotated[Names, About("extra models that runs may request by full name")] = ()
    urls: Annotated[
        dict[str, str], About("base URLs of providers, where they differ", check=checks.url)
    ] = _NONE
    keys: Annotated[
        dict[str, str],
        About(
            "names of the variables that hold a provider's API key; never the key itself",
            check=checks.variable,
        ),
    ] = _NONE
    prices: Annotated[
        dict[str, dict[str, Any]],
        About(
            "prices of models (by `provider:model`, a pattern of it, or an alias), in US "
            "dollars per million tokens: `input`, `output`, `cache_read`, `cache_write`",
            scope="user",
            check=checks.price,
        ),
    ] = _NONE
    facts: Annotated[
        dict[str, dict[str, Any]],
        About(
            'facts about a model, also as `[models."provider:model"]`: `window` and `max_output` '
            "in tokens, and its price like in `models.prices`",
            scope="user",
            check=checks.facts,
        ),
    ] = _NONE
    probe: Annotated[
        bool, About("look for local model servers when no API key is set", variable="RETINUE_PROBE")
    ] = True


class PermissionSettings(Value):
    """Which calls are made, asked about, or denied (docs/guides/permissions.md)."""

    mode: Annotated[str, About("permission mode", flag="--permission-mode", check=checks.mode)] = (
        "manual"
    )
    prompts: Annotated[
        Literal["auto", "terminal", "wait", "none"],
        About("where permission requests go", flag="--permission-prompts"),
    ] = "auto"
    allow: Annotated[
        Names,
        About(
            "rules for calls that run without asking",
            flag="--allowed-tools",
            joins=True,
            check=checks.rule,
            splits="rules",
        ),
    ] = ()
    ask: Annotated[
        Names,
        About(
            ("rules for calls that need permission"), joins=True, check=checks.rule, splits="rules"
        ),
    ] = ()
    deny: Annotated[
        Names,
        About(
            "rules for calls that are denied",
            flag="--disallowed-tools",
            joins=True,
            check=checks.rule,
            splits="rules",
        ),
    ] = ()
    directories: Annotated[
        Names, About("more directories that runs may use", flag="--add-dir", splits="paths")
    ] = ()


class Bounds(Value):
    """What a run may spend, and how many others it may start."""

    max_budget_usd: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        About("maximum cost of a run and its sub-agents, in US dollars", flag="--max-budget-usd"),
    ] = None
    max_tokens: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 53)] | None,
        About("maximum tokens of a run and its sub-agents", flag="--max-tokens"),
    ] = None
    on_limit: Annotated[
        Literal["land", "ask", "stop"],
        About(
            "at a limit of dollars or tokens: `land` (one last turn), `ask` or `stop`",
            flag="--on-limit",
        ),
    ] = "land"
    max_turns: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        About(("maximum turns of a run"), flag="--max-turns"),
    ] = None
    timeout: Annotated[
        float | str | None,
        About(
            ("maximum time of a run: seconds, or 45s, 10m, 1h30m"),
            flag="--max-time",
            old_variable="RETINUE_TIMEOUT",
            check=checks.duration,
        ),
    ] = None
    depth: Annotated[Annotated[int, Meta(ge=0, le=64)], About("maximum depth of sub-agents")] = 8
    children: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)], About("maximum open children of a run")
    ] = 10_000
    total: Annotated[
        Annotated[int, Meta(ge=0, le=10_000_000)] | None,
        About("maximum children of a run in total"),
    ] = None
    calls_per_turn: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)], About("maximum tool calls in one turn")
    ] = 64


class SandboxSection(Value):
    """What commands get (docs/sandbox.md)."""

    network: Annotated[bool, About("whether commands can use the network")] = False
    env: Annotated[
        Names, About("names of more variables that commands get", check=checks.variable)
    ] = ()
    unsafe_no_sandbox: Annotated[
        bool,
        About(("run commands without a sandbox if none is available"), scope="user", variable=""),
    ] = False


class ToolsSection(Value):
    """Which tools agents have."""

    enabled: Annotated[
        Names | None, About("only these tools; if not set, all that an agent names")
    ] = None
    disabled: Annotated[Names, About("never these tools", joins=True)] = ()


class Mcp(Value):
    """Where servers of tools are configured, beside `mcp_servers` and the project's own files
    (docs/guides/mcp_servers.md)."""

    files: Annotated[
        Names, About("more MCP server files", flag="--mcp-config", splits="paths", scope="user")
    ] = ()
    strict: Annotated[
        bool, About("only these files, none of the project's", flag="--strict-mcp-config")
    ] = False
    disabled: Annotated[Names, About("MCP servers not to start", joins=True)] = ()


class Agents(Value):
    """Which agents there are (docs/guides/agent_files.md)."""

    default: Annotated[str, About("default agent", flag="--agent")] = ""
    directories: Annotated[
        Names, About("more folders with agent definitions", splits="paths", scope="user")
    ] = ()
    writers: Annotated[
        Literal["worktrees", "turns"],
        About(
            "sub-agents that change files at the same time: in copies that are merged, or in turns"
        ),
    ] = "worktrees"


class StoreSection(Value):
    """Where runs are kept."""

    path: Annotated[
        str, About("database file; if not set, the project's", flag="--store", scope="user")
    ] = ""
    dispatch: Annotated[
        str,
        About(
            "what gives runs to the workers of a shared database, the same for all nodes: "
            "`database`, `procrastinate` or `temporal://HOST:PORT/NAMESPACE`",
            flag="--dispatch",
            check=dispatch,
            scope="user",
        ),
    ] = "database"


class RetentionSection(Value):
    """What is kept of runs that have ended (docs/explanation/store.md). Without it, everything
    is."""

    age: Annotated[
        float | str | None,
        About(
            ("maximum age of ended runs: seconds, or 12h, 30d"), check=checks.duration, scope="user"
        ),
    ] = None
    count: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 53)] | None,
        About("maximum number of ended runs; the newest are kept", scope="user"),
    ] = None
    size_mb: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 40)] | None,
        About("maximum size of the store in MiB; then the oldest runs are deleted", scope="user"),
    ] = None


class OutputSection(Value):
    """How things are shown."""

    color: Annotated[Literal["auto", "always", "never"], About("colours", flag="--color")] = "auto"
    format: Annotated[
        Literal["text", "json", "stream-json"],
        About("format of stdout for `retinue run`", flag="--output-format"),
    ] = "text"
    quiet: Annotated[bool, About("print only errors on stderr", flag="--quiet")] = False


class HostSection(Value):
    """The process that keeps runs going in the background."""

    idle_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=86_400 * 30)],
        About(
            ("seconds the host stays up with no open runs"),
            variable="RETINUE_IDLE_SECONDS",
            scope="user",
        ),
    ] = 30.0
    start_seconds: Annotated[
        Annotated[float, Meta(gt=0, le=600)],
        About(
            ("seconds to wait for the host to start"),
            variable="RETINUE_START_SECONDS",
            scope="user",
        ),
    ] = 20.0


class Configuration(Value):
    """Everything that can be configured. The families' sections (`profiles`, `families`, and the
    five documents' own names for them) are in `profiles` and `families`."""

    models: ModelsSection = ModelsSection()
    providers: Annotated[
        dict[str, dict[str, Any]],
        About(
            "a provider: `base_url`, `dialect` (`anthropic`, `openai`, `openai-chat`, `gemini`) "
            "and `key` (the name of a variable) of one of your own; rate limits for each account "
            "and model: `max_concurrent`, `start_concurrent`, `requests_per_minute`, "
            "`tokens_per_minute`, `cache_tokens`, `second_usd`",
            scope="user",
            check=checks.provider,
        ),
    ] = _NONE
    permissions: PermissionSettings = PermissionSettings()
    limits: Bounds = Bounds()
    sandbox: SandboxSection = SandboxSection()
    tools: ToolsSection = ToolsSection()
    mcp: Mcp = Mcp()
    mcp_servers: Annotated[
        dict[str, dict[str, Any]],
        About("MCP servers, in Codex's format", check=checks.server),
    ] = _NONE
    agents: Agents = Agents()
    store: StoreSection = StoreSection()
    retention: RetentionSection = RetentionSection()
    output: OutputSection = OutputSection()
    host: HostSection = HostSection()
    profiles: Annotated[
        Names | None, About("tool families, by name or by profile", flag="--family")
    ] = None
    families: Annotated[
        dict[str, dict[str, Any]], About("settings of families (docs/guides/families.md)")
    ] = _NONE


SEEDED = ("profiles", "families")
"""Settings that have more than one spelling in files: `seeds` reads them."""


@lru_cache(maxsize=64)
def explained(kind: Any) -> dict[str, tuple[Any, About | None]]:
    """The fields of a section with their types and what is known of them."""
    from typing import get_type_hints

    hints = get_type_hints(kind, include_extras=True)
    out = {}
    for name in kind.__struct_fields__:
        notes = getattr(hints[name], "__metadata__", ())
        out[name] = (hints[name], next((n for n in notes if isinstance(n, About)), None))
    return out
