"""Models by name: keys and addresses from the environment, aliases, allowlists, prices, and chains
of fallbacks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Budget, Refused, Retinue
from retinue.core.messages import AssistantMessage, ModelReply
from retinue.core.values import ModelInfo, Usage
from retinue.errors import ConfigError, ModelError, ModelRejected, ModelUnavailable
from retinue.models.base import ModelRequest
from retinue.models.catalog import Catalog
from retinue.models.fallback import Fallback
from retinue.models.gguf import read_facts
from retinue.models.http import HttpModel
from retinue.models.local import LocalModel
from retinue.models.local_prompt import style_of
from retinue.models.prices import _nanos, model_facts
from retinue.models.providers import PROVIDERS
from retinue.testing import run_virtual
from retinue.testing.fake_llm.fake_provider import FakeLLM
from tests.models.http_world import FAST, KEY, answering, asking, complete
from tests.models.test_local_prompt import FILE

VARIABLES = {
    "anthropic": (["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"], ["ANTHROPIC_BASE_URL"]),
    "openai": (["OPENAI_API_KEY"], ["OPENAI_BASE_URL"]),
    "openai-chat": (["OPENAI_API_KEY"], ["OPENAI_BASE_URL"]),
    "gemini": (["GEMINI_API_KEY", "GOOGLE_API_KEY"], ["GOOGLE_GEMINI_BASE_URL"]),
    "azure": (["AZURE_OPENAI_API_KEY"], ["AZURE_OPENAI_ENDPOINT"]),
    "openrouter": (["OPENROUTER_API_KEY"], []),
    "groq": (["GROQ_API_KEY"], []),
    "mistral": (["MISTRAL_API_KEY"], []),
    "deepseek": (["DEEPSEEK_API_KEY"], []),
    "xai": (["XAI_API_KEY"], []),
    "together": (["TOGETHER_API_KEY"], []),
    "fireworks": (["FIREWORKS_API_KEY"], []),
    "cerebras": (["CEREBRAS_API_KEY"], []),
    "moonshotai": (["MOONSHOTAI_API_KEY"], []),
    "zai": (["ZAI_API_KEY"], []),
    "dashscope": (["DASHSCOPE_API_KEY"], []),
    "huggingface": (["HF_TOKEN"], []),
    "github": (["GITHUB_API_KEY"], []),
    "ollama": ([], ["OLLAMA_BASE_URL", "OLLAMA_HOST"]),
}
BODIES = {
    "anthropic": (
        b'{"type":"message","content":[{"type":"text","text":"Hi"}],'
        b'"stop_reason":"end_turn","usage":{}}'
    ),
    "openai": (
        b'{"status":"completed","output":[{"type":"message","content":'
        b'[{"type":"output_text","text":"Hi"}]}]}'
    ),
    "gemini": b'{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}',
    "chat": b'{"choices":[{"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}',
}


def made(name: str, environ: dict[str, str], **fields: Any) -> HttpModel:
    model = Catalog(environ, **fields).find(name)
    assert isinstance(model, HttpModel)
    return model


async def heard_by(name: str, environ: dict[str, str], url: str) -> str:
    """What a provider hears of a call, head and body. `url` is the variable that says where it
    is."""
    from retinue.models.codec import Options

    body = BODIES.get(name.split(":")[0], BODIES["chat"])
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
        len(body),
        body,
    )
    async with answering(answer) as (at, server):
        catalog = Catalog({**environ, url: at}, options=Options(stream=False), times=FAST)
        try:
            assert (await complete(catalog.find(name))).message.text == "Hi"
        finally:
            await catalog.close()
        return server[0].decode("latin-1").lower()


# names, keys and addresses


@pytest.mark.parametrize("provider", sorted(VARIABLES))
def test_a_provider_takes_its_key_from_the_names_that_others_use(provider: str) -> None:
    keys, urls = VARIABLES[provider]
    base = {"AZURE_OPENAI_ENDPOINT": "https://mine.test"} if provider == "azure" else {}
    if keys:
        with pytest.raises(ConfigError, match=" or ".join(keys)):
            made(f"{provider}:m", base)
    for name in keys:
        model = made(f"{provider}:m", {**base, name: KEY})
        assert any(KEY in value for value in model._headers.values())
    for name in urls:
        environ = {keys[0]: KEY} if keys else {}
        assert made(f"{provider}:m", {**environ, name: "https://mine.test:99"})._url.startswith(
            "https://mine.test:99/"
        )


def test_a_gateways_token_is_sent_as_a_bearers_and_nothing_else() -> None:
    request = asyncio.run(
        heard_by("anthropic:m", {"ANTHROPIC_AUTH_TOKEN": "token-1234"}, "ANTHROPIC_BASE_URL")
    )
    assert "authorization: bearer token-1234" in request and "x-api-key" not in request
    both = {"ANTHROPIC_AUTH_TOKEN": "token-1234", "ANTHROPIC_API_KEY": KEY}
    request = asyncio.run(heard_by("anthropic:m", both, "ANTHROPIC_BASE_URL"))
    assert f"x-api-key: {KEY}" in request and "authorization" not in request


def test_organization_and_project_are_told_to_openai() -> None:
    environ = {"OPENAI_API_KEY": KEY, "OPENAI_ORG_ID": "org-1", "OPENAI_PROJECT_ID": "proj-2"}
    request = asyncio.run(heard_by("openai:m", environ, "OPENAI_BASE_URL"))
    assert "openai-organization: org-1" in request and "openai-project: proj-2" in request


def test_what_was_copied_around_a_key_is_dropped_and_what_is_in_it_is_refused() -> None:
    assert f"{KEY}" == made("anthropic:m", {"ANTHROPIC_API_KEY": f" {KEY}\n"})._headers["x-api-key"]
    for bad in (f"{KEY}\n{KEY}", f"{KEY} {KEY}", f"{KEY}\x00"):
        with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY") as failure:
            made("anthropic:m", {"ANTHROPIC_API_KEY": bad})
        assert KEY not in str(failure.value)


@pytest.mark.parametrize(
    ("text", "name_meant"),
    [
        ("", "http://localhost:11434/v1"),
        ("0.0.0.0", "http://0.0.0.0:11434/v1"),
        ("box", "http://box:11434/v1"),
        (":8080", "http://localhost:8080/v1"),
        ("box:1234", "http://box:1234/v1"),
        ("box/below", "http://box:11434/below/v1"),
        ("https://box.test", "https://box.test/v1"),
        ("http://box:1/v1/", "http://box:1/v1"),
    ],
)
def test_ollamas_address_is_understood_in_the_forms_that_ollama_takes(
    text: str, name_meant: str
) -> None:
    assert made("ollama:m", {"OLLAMA_HOST": text})._url == f"{name_meant}/chat/completions"


def test_an_address_that_holds_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigError) as failure:
        made("openai:m", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://u:secret123@host/v1"})
    assert "secret123" not in str(failure.value)


def test_a_name_that_names_nothing_is_explained() -> None:
    catalog = Catalog({"ANTHROPIC_API_KEY": KEY})
    for name, says in (
        ("claude-sonnet-4-5", "has no provider. Use PROVIDER:MODEL, for example anthropic:"),
        ("anthropic:", "has no provider"),
        ("antropic:m", "Did you mean 'anthropic'?"),
        ("|", "names no model"),
        ("azure:m", "AZURE_OPENAI_API_KEY"),
    ):
        with pytest.raises(ConfigError, match=says.replace("?", r"\?")):
            catalog.find(name)
    assert catalog.find("claude:m") is catalog.find("claude:m")


def test_aliases_lead_to_models_and_never_in_circles() -> None:
    aliases = {
        "fast": "quick",
        "quick": "anthropic:small",
        "a": "b",
        "b": "a",
        "x": "y | fast",
        "y": "fast|x",
        "me": "me",
    }
    catalog = Catalog({"ANTHROPIC_API_KEY": KEY}, aliases=aliases)
    fast, small = catalog.find("fast"), catalog.find("anthropic:small")
    assert isinstance(fast, HttpModel) and isinstance(small, HttpModel)
    assert fast.model == "small" and fast.governor is small.governor and fast.warmth is small.warmth
    for name in ("a", "b", "x", "y", "me"):
        with pytest.raises(ConfigError, match="refers to itself"):
            catalog.find(name)
    assert catalog.find("fast") is fast, "a mistake elsewhere leaves no trace"


def test_governors_are_shared_by_account_and_model() -> None:
    environ = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
    catalog = Catalog(environ, aliases={"one": "anthropic:m", "two": "claude:m"})
    models = [catalog.find(n) for n in ("one", "two", "anthropic:m", "anthropic:n", "openai:m")]
    governors = [m.governor for m in models if isinstance(m, HttpModel)]
    assert governors[0] is governors[1] is governors[2]
    assert len({id(g) for g in governors}) == 3
    assert [s.name for s in catalog.status()] == ["anthropic:m", "anthropic:n", "openai:m"]
    assert KEY not in repr((catalog.status(), catalog.client, catalog._accounts, models))


def test_only_what_is_allowed_of_a_provider_can_be_used() -> None:
    environ = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
    catalog = Catalog(
        environ, allow={"claude": ["claude-*"], "openai": []}, aliases={"sly": "anthropic:evil"}
    )
    catalog.find("anthropic:claude-sonnet-4-5")
    for name in (
        "anthropic:evil",
        "sly",
        "openai:gpt-5",
        "anthropic:claude-sonnet-4-5 | openai:gpt-5",
    ):
        with pytest.raises(ConfigError, match="is not allowed"):
            catalog.find(name)
    with pytest.raises(ConfigError, match="Unknown provider"):
        Catalog({}, allow={"antropic": []})


def test_a_name_is_resolved_through_aliases_and_chains_to_what_is_asked() -> None:
    aliases = {
        "fast": "quick",
        "quick": "claude:small",
        "both": "fast | GPT:big",
        "here": "local:x.gguf",
    }
    catalog = Catalog({}, aliases=aliases)
    for name, full_name in {
        "fast": "anthropic:small",
        " google : m ": "gemini:m",
        "both": "anthropic:small | openai:big",
        "fast|here": "anthropic:small | local:x.gguf",
    }.items():
        assert catalog.resolve(name) == full_name
        assert catalog.resolve(full_name) == full_name
    for name, is_known in {
        "fast": True,
        "a:b": True,
        "x | y": True,
        "slow": False,
        "": False,
    }.items():
        assert catalog.knows(name) is is_known


# models in this process


def tiny(folder: Path, name: str = "tiny.gguf") -> str:
    path = folder / name
    path.write_bytes(FILE)
    return str(path)


def test_a_local_model_is_found_by_its_path_and_is_in_memory_once(tmp_path: Path) -> None:
    path = tiny(tmp_path)
    catalog = Catalog({}, aliases={"here": f"local:{path}"})
    named, alias = catalog.find(f"local:{path}"), catalog.find("here")
    assert isinstance(named, LocalModel) and alias is named
    assert (named.info.name, named.info.window, named.info.price_in) == (f"local:{path}", 4_096, 0)
    assert catalog.status() == [], "nobody else's limits hold here"
    chain = catalog.find(f"Local: {path} | here")
    assert isinstance(chain, Fallback) and chain.models == (named, named)


def test_a_local_model_that_is_not_there_is_explained(tmp_path: Path) -> None:
    catalog = Catalog({"XDG_CACHE_HOME": str(tmp_path)})
    for name, says in (
        ("local:smollm2", "retinue models pull smollm2"),
        (f"local:{tmp_path}/none.gguf", "cannot be used as a local model"),
        ("local:", "has no provider"),
        ("locale:m", "Did you mean 'local'"),
        ("nothing:m", "llamacpp, lmstudio, local, mistral"),
    ):
        with pytest.raises(ConfigError, match=re.escape(says)):
            catalog.find(name)


def test_local_models_are_allowed_like_all_others(tmp_path: Path) -> None:
    good, bad = tiny(tmp_path, "good.gguf"), tiny(tmp_path, "bad.gguf")
    catalog = Catalog({}, allow={"local": ["*/good.gguf"]}, aliases={"sly": f"local:{bad}"})
    catalog.find(f"local:{good}")
    for name in (f"local:{bad}", "sly", f"local:{good} | local:{bad}"):
        with pytest.raises(ConfigError, match="not allowed for provider 'local'"):
            catalog.find(name)


def test_closing_a_catalog_frees_the_weights_of_its_local_models(tmp_path: Path) -> None:
    async def story() -> None:
        catalog = Catalog({})
        model = catalog.find(f"local:{tiny(tmp_path)}")
        assert isinstance(model, LocalModel)
        freed: list[bool] = []
        engine = type("Engine", (), {"__del__": lambda self: freed.append(True)})()
        model._engine = (engine, style_of(read_facts(model.path)))
        del engine
        await catalog.close()
        assert model._engine is None and freed == [True]
        await catalog.close()

    asyncio.run(story())


# prices


def test_a_price_is_known_or_unknown_and_never_rounded_down() -> None:
    facts = model_facts("n", "anthropic", "claude-sonnet-4-5", max_output=1_000)
    assert (facts.price_in, facts.price_out, facts.price_cache_read, facts.price_cache_write) == (
        3000,
        15000,
        300,
        3750,
    )
    assert (facts.window, facts.max_output) == (200_000, 1_000)
    for provider, model in (("anthropic", "no-such"), ("", "llama3"), ("no-such-provider", "m")):
        unknown = model_facts("n", provider, model, max_output=1_000)
        assert unknown.price_in is None and unknown.price_out is None and not unknown.priced
    assert _nanos(Decimal("0.0375")) == 38
    assert _nanos(Decimal("0.25")) == 250 and _nanos(Decimal(0)) == 0 and _nanos(None) is None


def test_most_providers_are_in_the_list_of_prices() -> None:
    snapshot = pytest.importorskip("genai_prices.data_snapshot").get_snapshot()
    listed = {p.id for p in snapshot.providers}
    unlisted = {p.name for p in PROVIDERS.values() if p.prices and p.prices not in listed}
    assert unlisted == {"dashscope", "github", "huggingface"}, "of these the prices are unknown"


def test_a_budget_in_dollars_is_refused_where_the_price_is_unknown() -> None:
    async def story() -> None:
        catalog = Catalog({"ANTHROPIC_API_KEY": KEY})
        async with Retinue(models=catalog) as retinue:
            with pytest.raises(Refused, match="price"):
                await retinue.run(
                    Agent("one", model="anthropic:no-such"), "Go.", budget=Budget(usd=1.0)
                )

    asyncio.run(story())


# chains


class Link:
    """A model that says what it is told to, or fails."""

    def __init__(
        self, name: str, *ends: ModelError | str, is_shut: bool = False, **info: Any
    ) -> None:
        self.info = ModelInfo(name=name, **info)
        self.provider, self.is_shut, self.asked = name, is_shut, 0
        self._ends = ends or ("ok",)

    async def complete(self, request: ModelRequest, emit: Any) -> ModelReply:
        end = self._ends[min(self.asked, len(self._ends) - 1)]
        self.asked += 1
        if isinstance(end, ModelError):
            raise end
        return ModelReply(message=AssistantMessage(text=end), usage=Usage(input=1), model="m")


def chained(*links: Link) -> str:
    return run_virtual(complete(Fallback(links, name="chain"), asking())).model


@pytest.mark.parametrize("kind", ["not_found", "quota", "overloaded", "auth", "tls", "redirect"])
def test_the_next_is_asked_where_the_first_cannot_be_had_and_it_is_told_which(kind: str) -> None:
    error = (
        ModelUnavailable("no", kind)
        if kind in ("quota", "overloaded")
        else ModelRejected("no", kind)
    )
    first, second = Link("a", error), Link("b")
    assert chained(first, second) == "b:m"
    assert (first.asked, second.asked) == (1, 1)
    assert chained(Link("a"), Link("b")) == "a:m"


@pytest.mark.parametrize("kind", ["rate_limit", "network", "server_error"])
def test_what_passes_is_waited_out_and_what_is_wrong_is_wrong_everywhere(kind: str) -> None:
    second = Link("b")
    with pytest.raises(ModelUnavailable):
        chained(Link("a", ModelUnavailable("later", kind)), second)
    with pytest.raises(ModelRejected):
        chained(Link("a", ModelRejected("no", "invalid_request")), second)
    assert second.asked == 0


def test_a_provider_that_is_down_is_passed_over_unless_all_are() -> None:
    down, up = Link("a", is_shut=True), Link("b")
    assert chained(down, up) == "b:m" and down.asked == 0
    assert chained(Link("a", is_shut=True), Link("b", is_shut=True)) == "a:m"
    with pytest.raises(ModelRejected):
        chained(Link("a", ModelRejected("no", "not_found")), Link("b", ModelRejected("no", "auth")))


def test_the_facts_of_a_chain_hold_for_each_link() -> None:
    a = Link("a", window=100, max_output=9, price_in=5, price_out=1, price_cache_write=6)
    b = Link("b", window=200, max_output=8, price_in=7, price_out=2)
    info = Fallback((a, b), name="chain").info
    assert (
        info.window,
        info.max_output,
        info.price_in,
        info.price_out,
        info.price_cache_write,
    ) == (100, 8, 7, 2, 7)
    assert not Fallback((a, Link("c")), name="chain").info.priced, (
        "one unknown price makes the chain's unknown"
    )


def test_a_chain_costs_what_the_link_costs_that_has_answered() -> None:
    no = ModelUnavailable("no", "quota")
    dear = Link("dear", no, price_in=70, price_out=90, price_cache_write=80)
    for price, cost in ((0, 0), (3, 3)):
        chain = Fallback((dear, Link("b", price_in=price, price_out=5)), name="chain")
        reply = run_virtual(complete(chain, asking()))
        assert (reply.usage.nanos, reply.is_priced) == (cost, True)
    unknown = run_virtual(complete(Fallback((dear, Link("c")), name="chain"), asking()))
    assert not unknown.is_priced, "then the chain has no price either"


def outage(n: int) -> Sequence[str]:
    return ["F3"] * n


def test_a_chain_over_http_goes_around_an_outage_and_comes_back() -> None:
    async def story() -> None:
        async with FakeLLM(["First."], faults=outage(6)) as one, FakeLLM(["Second."]) as two:
            environ = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": one.url}
            environ |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{two.url}/v1"}
            catalog = Catalog(environ, times=FAST)
            chain, first = catalog.find("anthropic:m | openai:m"), catalog.find("anthropic:m")
            assert isinstance(first, HttpModel)
            first.governor.probe_seconds = 3_600.0
            replies = [await complete(chain, asking(run=f"r{i}")) for i in range(20)]
            assert {r.model for r in replies} == {"openai:m"}
            assert (
                one.n_requests == 5
                and "5 failures in a row (overloaded)" in catalog.status()[0].why
            )
            first.governor.next_probe = 0.0
            assert (await complete(chain)).model == "openai:m", (
                "the probe failed, and the call did not"
            )
            first.governor.next_probe = 0.0
            assert (await complete(chain)).model == "anthropic:m"
            assert [s.why for s in catalog.status()] == ["", ""]
            await catalog.close()

    asyncio.run(story())


def test_what_was_asked_for_and_what_answered_is_on_record() -> None:
    async def story() -> None:
        async with FakeLLM(["Hello."], faults=["F51"]) as llm:
            catalog = Catalog({"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": llm.url}, times=FAST)
            async with Retinue(models=catalog) as retinue:
                outcome = await retinue.run(
                    Agent("one", model="anthropic:claude-sonnet-4-5"), "Go."
                )
            assert (
                outcome.model_requested == outcome.model_resolved == "anthropic:claude-sonnet-4-5"
            )
            assert outcome.model_used == "another-model"
            assert outcome.tree_usd > 0

    asyncio.run(story())


def test_of_an_alias_it_is_on_record_what_was_asked_for_what_it_means_and_what_answered(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with FakeLLM(["Hello."], faults=lambda request, n: "F51") as llm:
            environ = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": llm.url}
            aliases = {
                "fast": "claude:claude-sonnet-4-5",
                "sure": "fast | anthropic:claude-opus-4-1",
            }
            one = Agent("one", model="fast")
            catalog = Catalog(environ, times=FAST, aliases=aliases)
            async with Retinue(tmp_path / "log.db", models=catalog) as retinue:
                plain = await retinue.run(one, "Go.")
                chain = await retinue.run(one, "Go.", model="sure")
            async with Retinue(tmp_path / "log.db") as later:
                again = await later.outcome(plain.id)
                assert again is not None
        full_name = "anthropic:claude-sonnet-4-5"
        for texts in (plain, again):
            assert (texts.model_requested, texts.model_resolved, texts.model_used) == (
                "fast",
                full_name,
                "another-model",
            )
        assert (chain.model_requested, chain.model_resolved) == (
            "sure",
            f"{full_name} | anthropic:claude-opus-4-1",
        )
        assert chain.model_used == "anthropic:another-model"

    asyncio.run(story())


def test_a_chain_expects_of_a_cache_what_every_link_gives() -> None:
    catalog = Catalog({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "GROQ_API_KEY": "k"})
    sonnet, opus = (
        catalog.find("anthropic:claude-sonnet-4-5").info,
        catalog.find("anthropic:claude-opus-4-6").info,
    )
    assert (sonnet.cache_tokens, opus.cache_tokens) == (1_024, 4_096)
    both = catalog.find("anthropic:claude-sonnet-4-5 | anthropic:claude-opus-4-6").info
    assert (both.cache_tokens, both.price_cache_read) == (4_096, opus.price_cache_read)
    assert (
        catalog.find("anthropic:claude-sonnet-4-5 | groq:llama-3.3-70b-versatile").info.cache_tokens
        == 0
    )
