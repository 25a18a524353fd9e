"""Models: the one that would be used, which API keys are set, and whether providers answer. No key
is sent anywhere."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

from retinue.cli.context import CommandContext
from retinue.cli.doctor.finding import Came, Finding, in_parallel
from retinue.errors import ConfigError, NoProvider

SECONDS = 2.0


def _environment(
    context: CommandContext,
) -> tuple[tuple[str, str], tuple[dict[str, str], Mapping[str, tuple[str, ...]]]]:
    """The configured model and where it is set; the environment with what is configured, and what
    is allowed."""
    from retinue.config.model_config import model_environment, resolved
    from retinue.host.project_config import load

    settings = load(context.project, strict=False)
    models = settings.value.models
    name = models.default
    model_name = resolved(name, models) if name else ""
    environ = model_environment(models, context.environ)
    return (model_name, str(settings.origin("models.default"))), (environ, models.allow)


def model(context: CommandContext) -> Iterator[Finding]:
    from fnmatch import fnmatchcase

    from retinue.host import model_choice

    (name, where), (environ, allow) = _environment(context)
    calm = {**environ, "RETINUE_PROBE": "0"}
    calm.pop("RETINUE_MODEL", None)
    try:
        choice = model_choice.choose(calm, config=name)
    except NoProvider as error:
        yield Finding(
            name="model", state="broken", text=f"{name} ({where}): {error.problem}", fix=error.fix
        )
        return
    except ConfigError as error:
        yield Finding(
            name="model",
            state="broken",
            text=f"({where}) {error}",
            fix="retinue config set models.default ...",
        )
        return
    head, _, tail = choice.model.partition(":")
    if head in allow and not any(fnmatchcase(tail, pattern) for pattern in allow[head]):
        fix = f"add it to models.allow.{head}, or choose another model"
        yield Finding(
            name="model", state="broken", text=f"{choice.model} is not in models.allow", fix=fix
        )
        return
    why = where if name else choice.why
    if choice.model == model_choice.OFFLINE and not name:
        fix = "set ANTHROPIC_API_KEY or another provider's key to use a model"
        yield Finding(name="model", state="degraded", text=f"{choice.model} ({why})", fix=fix)
    else:
        yield Finding(name="model", state="ok", text=f"{choice.model} ({why})")


def reachable(context: CommandContext, *, offline: bool) -> Iterator[Finding]:
    """Whether the providers that have a key, and the configured one, answer at all."""
    from retinue.models.providers import PROVIDERS

    (name, _), (environ, _) = _environment(context)
    used = {part.strip().partition(":")[0] for part in name.split("|")}
    urls: dict[str, list[tuple[str, str]]] = {}
    for p in PROVIDERS.values():
        key = next((k for k in p.keys if environ.get(k, "").strip()), "")
        try:
            p.key(environ)
        except ConfigError as error:
            text = f"{p.name}: {error.problem}"
            yield Finding(name="providers", state="broken", text=text, fix=error.fix)
            continue
        if (key or p.name in used) and (url := p.base_url(environ)):
            urls.setdefault(url, []).append((p.name, key))
    if not urls:
        yield Finding(
            name="providers", state="ok", text="no API key is set, so no provider was checked"
        )
        return
    answers = {} if offline else in_parallel({u: _knock(u, environ) for u in urls}, SECONDS + 0.5)
    for url, named in urls.items():
        names = ", ".join(n for n, _ in named)
        keys = ", ".join(sorted({f"{k} is set" for _, k in named if k})) or "needs no key"
        if offline:
            yield Finding(
                name="providers", state="ok", text=f"{names}: {keys}; not checked (--offline)"
            )
            continue
        answer = answers[url] or Came(f"no answer within {SECONDS:g} s", is_good=False)
        host = urlsplit(url).netloc.rpartition("@")[2]
        fix = (
            ""
            if answer.is_good
            else "check the network, HTTPS_PROXY and NO_PROXY, and the provider's base URL"
        )
        text = (
            f"{names}: {keys}; {host} "
            f"{answer.text if answer.is_good else f'does not respond ({answer.text})'}"
        )
        yield Finding(
            name="providers", state="ok" if answer.is_good else "degraded", text=text, fix=fix
        )


class _Still(urllib.request.HTTPRedirectHandler):
    """Stays where it is: a redirect is an answer."""

    def redirect_request(self, *args: object, **named: object) -> None:
        return None


def _knock(url: str, environ: Mapping[str, str]) -> Callable[[], str]:
    """Any answer will do: who says 401 is there."""

    def knock() -> str:
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(_proxies(url, environ)), _Still
        )
        began = time.monotonic()
        try:
            with opener.open(
                urllib.request.Request(url, headers={"User-Agent": "retinue"}), timeout=SECONDS
            ):
                pass
        except urllib.error.HTTPError as error:
            error.close()
        except urllib.error.URLError as error:
            raise OSError(str(error.reason)) from None
        return f"responds in {(time.monotonic() - began) * 1000:.0f} ms"

    return knock


def _proxies(url: str, environ: Mapping[str, str]) -> dict[str, str]:
    parts = urlsplit(url)
    exempt = (environ.get("no_proxy") or environ.get("NO_PROXY") or "").replace(",", " ").split()
    host = parts.hostname or ""
    if any(
        name == "*" or host == name.lstrip(".") or host.endswith("." + name.lstrip("."))
        for name in exempt
    ):
        return {}
    proxy = environ.get(f"{parts.scheme}_proxy") or environ.get(f"{parts.scheme.upper()}_PROXY")
    return {parts.scheme: proxy} if proxy else {}


def local(context: CommandContext, *, offline: bool) -> Iterator[Finding]:
    from retinue.host import model_choice

    ports = ", ".join(f"{name} {port}" for name, port in model_choice.SERVERS.items())
    if offline:
        yield Finding(name="local servers", state="ok", text=f"not checked (--offline): {ports}")
        return
    servers = model_choice.local_servers({**context.environ})
    if servers:
        text = f"running: {', '.join(servers)}; use one with --model {servers[0]}:MODEL"
    else:
        text = f"none found ({ports})"
    yield Finding(name="local servers", state="ok", text=text)
