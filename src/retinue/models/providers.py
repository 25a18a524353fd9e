"""The known providers: API format, address, and the variables that hold a key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from retinue.errors import ConfigError
from retinue.formats.suggestion import did_you_mean
from retinue.models.codec import Codec


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """`keys` and `urls` are names of environment variables, the first that is set counts; without
    `keys` none is needed. The value of one of `tokens` is sent as a bearer token. `prices` is the
    provider's name in the price list, `port` the one of an address that names none, `tail` what
    every address ends with, `sent_headers` what is sent with every call."""

    name: str
    codec: Callable[[Mapping[str, str]], Codec]
    url: str = ""
    keys: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    prices: str = ""
    tail: str = ""
    max_output: int = 8_192
    tokens: tuple[str, ...] = ()
    port: int | None = None
    sent_headers: tuple[tuple[str, str], ...] = ()

    def key(self, environ: Mapping[str, str]) -> str:
        name, key = _first(self.keys, environ)
        if not key.isprintable() or " " in key:
            raise ConfigError(
                f"{name} contains characters that are not valid in a key",
                "Copy the key again, on one line.",
            )
        return key

    def headers(self, environ: Mapping[str, str]) -> dict[str, str | None]:
        """What differs from the dialect's own headers."""
        name, key = _first(self.keys, environ)
        bearer = (
            {"x-api-key": None, "authorization": f"Bearer {key}"} if name in self.tokens else {}
        )
        return {**bearer, **dict(self.sent_headers)}

    def base_url(self, environ: Mapping[str, str]) -> str:
        address = (_first(self.urls, environ)[1] or self.url).rstrip("/")
        if address and "://" not in address:
            address = f"http://{'localhost' if address.startswith(':') else ''}{address}"
            if self.port is not None and not re.search(r":\d+(/|$)", address.partition("://")[2]):
                host, slash, path = address.partition("://")[2].partition("/")
                address = f"http://{host}:{self.port}{slash}{path}"
        return address if not address or address.endswith(self.tail) else address + self.tail


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, str]:
    """The first of the variables that is set, and what it holds."""
    return next(((n, value) for n in names if (value := environ.get(n, "").strip())), ("", ""))


def _anthropic(environ: Mapping[str, str]) -> Codec:
    from retinue.models.anthropic import AnthropicCodec

    return AnthropicCodec()


def _responses(environ: Mapping[str, str]) -> Codec:
    from retinue.models.openai_responses import OpenAIResponsesCodec

    return OpenAIResponsesCodec(
        environ.get("OPENAI_ORG_ID", ""), environ.get("OPENAI_PROJECT_ID", "")
    )


def _gemini(environ: Mapping[str, str]) -> Codec:
    from retinue.models.gemini import GeminiCodec

    return GeminiCodec()


def _chat(**fields: Any) -> Callable[[Mapping[str, str]], Codec]:
    def make(environ: Mapping[str, str]) -> Codec:
        from retinue.models.openai_chat import OpenAIChatCodec

        return OpenAIChatCodec(**fields)

    return make


_OTHERS: dict[str, Any] = {
    "limit_field": "max_tokens",
    "cache_key": False,
    "strict_tools": False,
}
_LOCAL: dict[str, Any] = {**_OTHERS, "done_marker": False, "most_tools": 0}


def _hosted(name: str, url: str, key: str, prices: str = "", **fields: Any) -> KnownProvider:
    return KnownProvider(
        name, _chat(**{**_OTHERS, **fields}), url=url, keys=(key,), prices=prices or name
    )


PROVIDERS: dict[str, KnownProvider] = {
    p.name: p
    for p in (
        KnownProvider(
            "anthropic",
            _anthropic,
            url="https://api.anthropic.com",
            keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
            tokens=("ANTHROPIC_AUTH_TOKEN",),
            urls=("ANTHROPIC_BASE_URL",),
            prices="anthropic",
        ),
        KnownProvider(
            "openai",
            _responses,
            url="https://api.openai.com/v1",
            keys=("OPENAI_API_KEY",),
            urls=("OPENAI_BASE_URL",),
            prices="openai",
        ),
        KnownProvider(
            "openai-chat",
            _chat(),
            url="https://api.openai.com/v1",
            keys=("OPENAI_API_KEY",),
            urls=("OPENAI_BASE_URL",),
            prices="openai",
        ),
        KnownProvider(
            "gemini",
            _gemini,
            url="https://generativelanguage.googleapis.com",
            keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            urls=("GOOGLE_GEMINI_BASE_URL",),
            prices="google",
        ),
        KnownProvider(
            "azure",
            _chat(auth="api-key", endpoint="/openai/v1/chat/completions", cache_key=False),
            keys=("AZURE_OPENAI_API_KEY",),
            urls=("AZURE_OPENAI_ENDPOINT",),
            prices="azure",
        ),
        _hosted(
            "openrouter",
            "https://openrouter.ai/api/v1",
            "OPENROUTER_API_KEY",
            reasoning="reasoning_details",
        ),
        _hosted("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        _hosted(
            "mistral",
            "https://api.mistral.ai/v1",
            "MISTRAL_API_KEY",
            strict_ids=True,
            bridge="Continue.",
        ),
        _hosted(
            "deepseek",
            "https://api.deepseek.com/v1",
            "DEEPSEEK_API_KEY",
            reasoning="reasoning_content",
        ),
        _hosted("xai", "https://api.x.ai/v1", "XAI_API_KEY", prices="x-ai"),
        _hosted("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        _hosted("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        _hosted("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
        _hosted(
            "moonshotai",
            "https://api.moonshot.ai/v1",
            "MOONSHOTAI_API_KEY",
            reasoning="reasoning_content",
        ),
        _hosted("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
        _hosted(
            "dashscope",
            "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
            "DASHSCOPE_API_KEY",
        ),
        _hosted("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN"),
        _hosted("github", "https://models.github.ai/inference", "GITHUB_API_KEY"),
        KnownProvider(
            "ollama",
            _chat(**_LOCAL),
            url="http://localhost:11434",
            urls=("OLLAMA_BASE_URL", "OLLAMA_HOST"),
            tail="/v1",
            port=11434,
        ),
        KnownProvider(
            "lmstudio", _chat(**_LOCAL), url="http://localhost:1234/v1", urls=("LMSTUDIO_BASE_URL",)
        ),
        KnownProvider(
            "llamacpp", _chat(**_LOCAL), url="http://localhost:8080/v1", urls=("LLAMACPP_BASE_URL",)
        ),
        KnownProvider(
            "vllm", _chat(**_LOCAL), url="http://localhost:8000/v1", urls=("VLLM_BASE_URL",)
        ),
    )
}
ALIASES = {
    "claude": "anthropic",
    "google": "gemini",
    "gpt": "openai",
    "chatgpt": "openai",
    "lm-studio": "lmstudio",
}
LOCAL = "local"
DIRECTORY = "RETINUE_DIRECTORY"
"""In the environment of a catalog: where relative paths of weights start, if not where the process
does."""
"""The provider of models that run in this process: no dialect, no key, no address."""


def adopt_providers(providers: Mapping[str, KnownProvider]) -> None:
    """Those that the user's configuration declares are known like all others, for as long as this
    process lives: a command, or the host."""
    PROVIDERS.update(providers)


def provider_name(name: str, providers: Mapping[str, KnownProvider] = PROVIDERS) -> str:
    """The provider that is meant; raises `ConfigError` with the names that there are."""
    provider = name.strip().lower()
    provider = ALIASES.get(provider, provider)
    if provider in providers or provider == LOCAL:
        return provider
    hint = did_you_mean(provider, [*providers, *ALIASES, LOCAL])
    raise ConfigError(
        f"Unknown provider {name!r}.{hint} Known: {', '.join(sorted([*providers, LOCAL]))}"
    )
