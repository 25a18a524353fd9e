"""Routes of OpenAI's APIs in the host's application, behind the same guard as all others."""

from __future__ import annotations

from starlette.routing import Route

from retinue.host.host import Host
from retinue.host.problem_documents import OPENAI_PREFIX
from retinue.server.openai.agent_models import list_models, one_model
from retinue.server.openai.agent_requests import Handler, guarded
from retinue.server.openai.chat_completions import chat_completions
from retinue.server.openai.responses_api import cancel_response, create_response, one_response

TABLE: tuple[tuple[str, str, str, Handler], ...] = (
    ("GET", "/models", "openai_models", list_models),
    ("GET", "/models/{model}", "openai_model", one_model),
    ("POST", "/chat/completions", "openai_chat", chat_completions),
    ("POST", "/responses", "openai_respond", create_response),
    ("GET", "/responses/{response_id}", "openai_response", one_response),
    ("POST", "/responses/{response_id}/cancel", "openai_cancel", cancel_response),
)


def openai_routes(host: Host) -> list[Route]:
    routes = []
    for method, path, name, handler in TABLE:
        route = Route(OPENAI_PREFIX + path, guarded(host, name, handler), methods=[method])
        route.methods = {method}  # without HEAD, which would open a stream that no one reads
        routes.append(route)
    return routes
