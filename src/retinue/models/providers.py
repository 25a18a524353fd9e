"""The providers that are known by name: which dialect each speaks, where it is, and which variables hold its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from retinue.models.codec import Codec


@dataclass(frozen=True, slots=True)
class Provider:
    """`keys` and `urls` are names of environment variables, the first that is set counts; without `keys` none is
    needed. `prices` is the provider's name in the price list."""

    name: str
    codec: Callable[[Mapping[str, str]], Codec]
    url: str = ""
    keys: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    prices: str = ""
    tail: str = ""
    max_output: int = 8_192

    def key(self, environ: Mapping[str, str]) -> str:
        return next((environ[k] for k in self.keys if environ.get(k)), "")

    def base_url(self, environ: Mapping[str, str]) -> str:
        found = next((environ[u] for u in self.urls if environ.get(u)), "") or self.url
        if found and "://" not in found:
            found = f"http://{found}"
        found = found.rstrip("/")
        return found if not self.tail or found.endswith(self.tail) else found + self.tail


def _anthropic(environ: Mapping[str, str]) -> Codec:
    from retinue.models.anthropic import Anthropic

    return Anthropic()


def _responses(environ: Mapping[str, str]) -> Codec:
    from retinue.models.openai_responses import OpenAIResponses

    return OpenAIResponses(environ.get("OPENAI_ORG_ID", ""), environ.get("OPENAI_PROJECT_ID", ""))


def _gemini(environ: Mapping[str, str]) -> Codec:
    from retinue.models.gemini import Gemini

    return Gemini()


def _chat(**fields: Any) -> Callable[[Mapping[str, str]], Codec]:
    def make(environ: Mapping[str, str]) -> Codec:
        from retinue.models.openai_chat import OpenAIChat

        return OpenAIChat(**fields)

    return make


_OTHERS: dict[str, Any] = {"limit_field": "max_tokens", "cache_key": False}
_LOCAL: dict[str, Any] = {**_OTHERS, "done_marker": False}


def _hosted(name: str, url: str, key: str, prices: str = "", **fields: Any) -> Provider:
    return Provider(name, _chat(**{**_OTHERS, **fields}), url=url, keys=(key,), prices=prices or name)


PROVIDERS: dict[str, Provider] = {
    p.name: p
    for p in (
        Provider(
            "anthropic",
            _anthropic,
            url="https://api.anthropic.com",
            keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
            urls=("ANTHROPIC_BASE_URL",),
            prices="anthropic",
        ),
        Provider(
            "openai",
            _responses,
            url="https://api.openai.com/v1",
            keys=("OPENAI_API_KEY",),
            urls=("OPENAI_BASE_URL",),
            prices="openai",
        ),
        Provider(
            "openai-chat",
            _chat(),
            url="https://api.openai.com/v1",
            keys=("OPENAI_API_KEY",),
            urls=("OPENAI_BASE_URL",),
            prices="openai",
        ),
        Provider(
            "gemini",
            _gemini,
            url="https://generativelanguage.googleapis.com",
            keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            urls=("GOOGLE_GEMINI_BASE_URL",),
            prices="google",
        ),
        Provider(
            "azure",
            _chat(auth="api-key", endpoint="/openai/v1/chat/completions", cache_key=False),
            keys=("AZURE_OPENAI_API_KEY",),
            urls=("AZURE_OPENAI_ENDPOINT",),
            prices="azure",
        ),
        _hosted("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", reasoning="reasoning_details"),
        _hosted("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        _hosted("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", strict_ids=True, bridge="Go on."),
        _hosted("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", reasoning="reasoning_content"),
        _hosted("xai", "https://api.x.ai/v1", "XAI_API_KEY", prices="x-ai"),
        _hosted("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        _hosted("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        _hosted("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
        _hosted("moonshotai", "https://api.moonshot.ai/v1", "MOONSHOTAI_API_KEY", reasoning="reasoning_content"),
        _hosted("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
        _hosted("dashscope", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
        _hosted("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN"),
        _hosted("github", "https://models.github.ai/inference", "GITHUB_API_KEY"),
        Provider(
            "ollama",
            _chat(**_LOCAL),
            url="http://localhost:11434",
            urls=("OLLAMA_BASE_URL", "OLLAMA_HOST"),
            tail="/v1",
        ),
        Provider("lmstudio", _chat(**_LOCAL), url="http://localhost:1234/v1", urls=("LMSTUDIO_BASE_URL",)),
        Provider("llamacpp", _chat(**_LOCAL), url="http://localhost:8080/v1", urls=("LLAMACPP_BASE_URL",)),
        Provider("vllm", _chat(**_LOCAL), url="http://localhost:8000/v1", urls=("VLLM_BASE_URL",), keys=()),
    )
}
ALIASES = {"claude": "anthropic", "google": "gemini", "gpt": "openai", "chatgpt": "openai", "lm-studio": "lmstudio"}
