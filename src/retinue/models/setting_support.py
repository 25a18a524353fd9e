"""Which settings an API format supports, and their names there."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from retinue.core.model_settings import NO_SETTINGS, ModelSettings
from retinue.core.values import ModelInfo
from retinue.current_models import has_fixed_sampling
from retinue.errors import ConfigError
from retinue.models.base import Model, ModelRequest
from retinue.models.codec import Options, encode_json

ALL = tuple(ModelSettings.__struct_fields__)
TAKES: dict[str, tuple[str, ...]] = {
    "anthropic": tuple(name for name in ALL if name != "seed"),
    "openai_chat": tuple(name for name in ALL if name != "thinking"),
    "openai_responses": tuple(n for n in ALL if n not in ("thinking", "stop", "seed")),
    "gemini": tuple(name for name in ALL if name != "parallel_tool_calls"),
    "local": ("max_output", "temperature", "top_p", "stop", "seed", "extra"),
    "explorer": ("max_output",),
}
"""By API format. A model of one's own gets every setting in its request."""
INSTEAD = {
    ("openai_chat", "thinking"): "effort",
    ("openai_responses", "thinking"): "effort",
}
NO_CALLS = {
    "anthropic": b',"tool_choice":{"type":"none"}',
    "gemini": b',"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}',
    "openai_chat": b',"tool_choice":"none"',
    "openai_responses": b',"tool_choice":"none"',
}
"""How a dialect says that tools which stay declared, so that the prefix stays the same, are not to
be called now."""
MOST_STOPS = {"openai_chat": 4, "gemini": 5}
MIN_THOUGHT = 1_024
AUTO_THOUGHT = 8_192
"""The tokens for thinking that is only switched on."""


def check_settings(settings: ModelSettings, model: Model, name: str, whose: str) -> None:
    """Raises `ConfigError` if a model, or a link of a chain, cannot take a setting."""
    for link in getattr(model, "models", (model,)):
        model_name = link.info.name or name
        called = getattr(link, "model", "")
        if problem := refusal(settings, format_of(link), link.info, called):
            raise ConfigError(f"{whose}: {model_name} {problem}")


def format_of(model: Model) -> str:
    """The API format of a model; "" for one that takes whatever it is given."""
    codec = getattr(model, "codec", None)
    own = str(getattr(model, "settings_format", ""))
    return own if codec is None else str(codec.dialect)


def refusal(settings: ModelSettings, dialect: str, info: ModelInfo, model: str = "") -> str:
    """Why a model does not take these settings, as the end of a sentence, or "". `model` is what
    its provider calls it."""
    if settings is NO_SETTINGS or settings == NO_SETTINGS:
        return ""
    takes = TAKES.get(dialect, ALL)
    if odd := next((name for name in settings.set_fields if name not in takes), ""):
        other = INSTEAD.get((dialect, odd))
        hint = f"Use {other} instead." if other else f"Remove it. It takes {', '.join(takes)}."
        return f"does not take the setting {odd!r}. {hint}"
    if settings.max_output is not None and settings.max_output > info.max_output:
        return (
            f"writes at most {info.max_output:,} tokens in a reply, and max_output is "
            f"{settings.max_output:,}."
        )
    most = MOST_STOPS.get(dialect)
    if most and settings.stop is not None and len(settings.stop) > most:
        return f"takes at most {most} texts in stop, not {len(settings.stop)}."
    if dialect == "anthropic":
        return _anthropic(settings)
    is_sampled = settings.temperature not in (None, 1) or settings.top_p is not None
    if is_sampled and dialect.startswith("openai") and has_fixed_sampling(model):
        return "takes neither temperature nor top_p. Use effort instead."
    return ""


def _anthropic(settings: ModelSettings) -> str:
    if settings.temperature is not None and settings.temperature > 1:
        return f"takes a temperature from 0 to 1, not {settings.temperature:g}."
    if settings.thinking and settings.temperature not in (None, 1):
        return "takes no temperature but 1 while it thinks. Remove temperature or thinking."
    if settings.thinking and settings.tool_choice not in (None, "auto", "none"):
        return "cannot be made to call a tool while it thinks. Remove tool_choice or thinking."
    tokens = settings.thinking
    if type(tokens) is int and tokens < MIN_THOUGHT:
        return f"thinks for {MIN_THOUGHT:,} tokens or more, not {tokens:,}."
    if type(tokens) is int and settings.max_output is not None and tokens >= settings.max_output:
        return "counts thinking as output, so that max_output must be larger than thinking."
    return ""


def with_settings(options: Options, settings: ModelSettings) -> Options:
    """The options of a model for one request: what its run has set goes first."""
    if settings is NO_SETTINGS or settings == NO_SETTINGS:
        return options
    thinking_setting = settings.thinking
    if isinstance(thinking_setting, bool):
        thinking_setting = AUTO_THOUGHT if thinking_setting else 0
    fields = {
        "temperature": settings.temperature if options.is_sampled else None,
        "effort": settings.effort,
        "thinking_tokens": thinking_setting,
        "top_p": settings.top_p if options.is_sampled else None,
        "stop": settings.stop,
        "seed": settings.seed,
        "tool_choice": settings.tool_choice,
        "parallel_tool_calls": settings.parallel_tool_calls,
        "extra": {**options.extra, **settings.extra} if settings.extra else None,
    }
    return replace(options, **{name: value for name, value in fields.items() if value is not None})


def choice_field(dialect: str, options: Options, request: ModelRequest) -> bytes:
    """What a body says about which tool is to be called, to be put before its end; b"" when
    there is nothing to say."""
    if not request.tools:
        return NO_CALLS[dialect] if request.declared else b""
    choice, parallel = options.tool_choice, options.parallel_tool_calls
    if not choice and parallel is None:
        return b""
    fields = _CHOICES[dialect](choice, parallel)
    return b"," + encode_json(fields)[1:-1] if fields else b""


def _anthropic_choice(choice: str, parallel: bool | None) -> dict[str, object]:
    kind: dict[str, object] = {"type": choice or "auto"}
    if choice not in ("", "auto", "any", "none"):
        kind = {"type": "tool", "name": choice}
    if parallel is not None and choice != "none":
        kind["disable_parallel_tool_use"] = not parallel
    return {"tool_choice": kind}


def _openai_choice(
    choice: str, parallel: bool | None, named: dict[str, object]
) -> dict[str, object]:
    out: dict[str, object] = {} if parallel is None else {"parallel_tool_calls": parallel}
    words = {"auto": "auto", "any": "required", "none": "none"}
    return {**out, "tool_choice": words.get(choice, named)} if choice else out


def _chat_choice(choice: str, parallel: bool | None) -> dict[str, object]:
    named: dict[str, object] = {"type": "function", "function": {"name": choice}}
    return _openai_choice(choice, parallel, named)


def _responses_choice(choice: str, parallel: bool | None) -> dict[str, object]:
    return _openai_choice(choice, parallel, {"type": "function", "name": choice})


def _gemini_choice(choice: str, parallel: bool | None) -> dict[str, object]:
    if not choice:
        return {}
    words = {"auto": "AUTO", "any": "ANY", "none": "NONE"}
    config: dict[str, object] = {"mode": words.get(choice, "ANY")}
    if choice not in words:
        config["allowedFunctionNames"] = [choice]
    return {"toolConfig": {"functionCallingConfig": config}}


_CHOICES: dict[str, Callable[[str, bool | None], dict[str, object]]] = {
    "anthropic": _anthropic_choice,
    "openai_chat": _chat_choice,
    "openai_responses": _responses_choice,
    "gemini": _gemini_choice,
}
