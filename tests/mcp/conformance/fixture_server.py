"""What the conformance suite expects a server to offer, on our protocol, HTTP endpoint and guard:
`python -m tests.mcp.conformance.fixture_server PORT`."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette

from retinue.host.access_guard import AccessGuard
from retinue.host.identity import OWNER
from retinue.host.keyring import Keyring
from retinue.mcp import rpc_messages as rpc
from retinue.mcp.completions import completion
from retinue.mcp.http_endpoint import McpEndpoint
from retinue.mcp.protocol_versions import TASKS, ClientFacts
from retinue.mcp.rpc_messages import RpcError
from retinue.mcp.rpc_server import RpcCall, RpcServer
from retinue.mcp.subscriptions import Subscriptions
from retinue.mcp.task_methods import TaskMethods, created_task
from tests.mcp.conformance.fixture_forms import form_params
from tests.mcp.conformance.fixture_schemas import schema_of
from tests.mcp.conformance.fixture_tasks import FixtureTask, FixtureTasks, form, text_result

TOKEN = "a-token-for-the-suite"
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5E"
    "rkJggg=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
KEY = b"of the fixture"


def sealed(state: str) -> str:
    return f"{state}.{hmac.new(KEY, state.encode(), hashlib.sha256).hexdigest()}"


def opened(call: RpcCall) -> str:
    """The state that came back; "" when there is none. A false one is refused."""
    state_given = call.params.get("requestState")
    if state_given is None:
        return ""
    state = str(state_given).rpartition(".")[0]
    if sealed(state) != state_given:
        raise RpcError(rpc.INVALID_PARAMS, "requestState is not one that this server gave.")
    return state


def answered(call: RpcCall, key: str, name: str) -> Any:
    """What the user filled in, None when it is not there as it was asked for."""
    responses = call.params.get("inputResponses")
    response = responses.get(key) if isinstance(responses, dict) else None
    content = response.get("content") if isinstance(response, dict) else None
    return content.get(name) if isinstance(content, dict) else None


def needed(requests: dict[str, Any], state: str = "") -> dict[str, Any]:
    out = {"resultType": "input_required", "inputRequests": requests}
    return out | ({"requestState": sealed(state)} if state else {})


class Fixtures:
    """The tools, resources and prompts of the suite."""

    instructions = "Fixtures of the conformance suite."

    def __init__(self) -> None:
        self.tasks = FixtureTasks()
        self.methods: dict[str, Callable[[RpcCall], Awaitable[dict[str, Any]]]] = {
            "tools/list": self._list,
            "tools/call": self._call,
            "resources/list": _resources,
            "resources/read": _read,
            "resources/templates/list": _templates,
            "prompts/list": _prompts,
            "prompts/get": _prompt,
            "completion/complete": lambda call: completion(call, COMPLETED),
            **TaskMethods(self.tasks).methods,
            "subscriptions/listen": Subscriptions(self.tasks, _version).listen,
        }
        self._tools: dict[str, Callable[[RpcCall, dict[str, Any]], Any]] = {
            name.removeprefix("tool_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("tool_")
        }
        self._required = ("failing_job", "test_tool_with_task")

    def capabilities(self, client: ClientFacts) -> dict[str, Any]:
        out: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}
        return out | ({"extensions": {TASKS: {}}} if client.is_stateless else {})

    async def _list(self, call: RpcCall) -> dict[str, Any]:
        return {
            "tools": [
                {"name": name, "description": name, "inputSchema": schema_of(name)}
                for name in sorted(self._tools, key=lambda name: (name != "greet", name))
            ]
        }

    async def _call(self, call: RpcCall) -> dict[str, Any]:
        name = call.text_param("name")
        if name not in self._tools:
            raise RpcError(rpc.INVALID_PARAMS, f"There is no tool {name!r}.")
        if name in self._required and call.client.is_stateless:
            call.client.need_tasks()
        result = self._tools[name](call, call.params.get("arguments") or {})
        out: dict[str, Any] = await result if asyncio.iscoroutine(result) else result
        return out

    def _task(self, call: RpcCall, work: Any) -> Any:
        """As a task where the client has tasks, else at once."""
        if call.client.has_tasks:
            return created_task(self.tasks.start(work), call.client)
        return work(FixtureTask())

    def tool_greet(self, call: RpcCall, values: dict[str, Any]) -> dict[str, Any]:
        return text_result(f"Hello, {values.get('name', '')}!")

    def tool_slow_compute(self, call: RpcCall, values: dict[str, Any]) -> Any:
        async def work(task: FixtureTask) -> dict[str, Any]:
            await asyncio.sleep(float(values.get("seconds", 0)))
            return text_result("computed")

        return self._task(call, work) if values.get("seconds") else work(FixtureTask())

    def tool_failing_job(self, call: RpcCall, values: dict[str, Any]) -> Any:
        async def work(task: FixtureTask) -> dict[str, Any]:
            await asyncio.sleep(1)
            return text_result("The job failed.", isError=True)

        return self._task(call, work)

    def tool_protocol_error_job(self, call: RpcCall, values: dict[str, Any]) -> Any:
        async def work(task: FixtureTask) -> dict[str, Any]:
            raise RpcError(rpc.INTERNAL_ERROR, "The server failed.")

        return self._task(call, work)

    def tool_confirm_delete(self, call: RpcCall, values: dict[str, Any]) -> Any:
        async def work(task: FixtureTask) -> dict[str, Any]:
            answer = await task.ask(form(f"Delete {values.get('filename')}?", confirm="boolean"))
            return text_result(f"answer {answer}")

        return self._task(call, work)

    def tool_multi_input(self, call: RpcCall, values: dict[str, Any]) -> Any:
        async def work(task: FixtureTask) -> dict[str, Any]:
            replies = [task.ask(form(text, name="string")) for text in ("one?", "two?")]
            return text_result(f"answers {await asyncio.gather(*replies)}")

        return self._task(call, work)

    def tool_test_tool_with_task(self, call: RpcCall, values: dict[str, Any]) -> Any:
        name = answered(call, "user_name", "name")
        if name is None:
            return needed({"user_name": form("Who?", name="string")})

        async def work(task: FixtureTask) -> dict[str, Any]:
            return text_result(f"Hello, {name}!")

        return self._task(call, work)

    def tool_test_simple_text(self, call: RpcCall, values: dict[str, Any]) -> dict[str, Any]:
        return text_result("This is a simple text response for testing.")

    def tool_test_image_content(self, call: RpcCall, values: dict[str, Any]) -> dict[str, Any]:
        return {"content": [IMAGE]}

    def tool_test_audio_content(self, call: RpcCall, values: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}

    def tool_test_embedded_resource(self, call: RpcCall, values: dict[str, Any]) -> dict[str, Any]:
        return {"content": [embedded("test://embedded-resource")]}

    def tool_test_multiple_content_types(
        self, call: RpcCall, values: dict[str, Any]
    ) -> dict[str, Any]:
        text = {"type": "text", "text": "Multiple content types test:"}
        return {"content": [text, IMAGE, embedded("test://mixed-content-resource")]}

    def tool_json_schema_2020_12_tool(
        self, call: RpcCall, values: dict[str, Any]
    ) -> dict[str, Any]:
        return text_result("ok")

    def tool_test_error_handling(self, call: RpcCall, values: dict[str, Any]) -> dict[str, Any]:
        return text_result("This tool intentionally returns an error for testing", isError=True)

    async def tool_test_tool_with_progress(
        self, call: RpcCall, values: dict[str, Any]
    ) -> dict[str, Any]:
        for result in (0, 50, 100):
            await call.progress(result, 100, f"{result} of 100")
            await asyncio.sleep(0.05)
        return text_result("done")

    def tool_test_missing_capability(self, call: RpcCall, values: dict[str, Any]) -> Any:
        if "sampling" not in call.client.capabilities:
            data = {"requiredCapabilities": {"sampling": {}}}
            raise RpcError(rpc.MISSING_CAPABILITY, "This needs sampling.", data)
        return text_result("ok")

    async def tool_test_elicitation(self, call: RpcCall, values: dict[str, Any]) -> Any:
        request = form(str(values.get("message", "?")), username="string", email="string")
        return text_result(f"User response: {await call.ask_client(*request.values())}")

    async def tool_test_elicitation_sep1034_defaults(
        self, call: RpcCall, values: dict[str, Any]
    ) -> dict[str, Any]:
        params = form_params(call.text_param("name"))
        response = await call.ask_client("elicitation/create", params)
        text = f"action={response.get('action')}, content={response.get('content')}"
        return text_result(f"Elicitation completed: {text}")

    tool_test_elicitation_sep1330_enums = tool_test_elicitation_sep1034_defaults

    def tool_test_streaming_elicitation(
        self, call: RpcCall, values: dict[str, Any]
    ) -> dict[str, Any]:
        return needed({"user_name": form("What is your name?", name="string")})

    def tool_test_logging_tool(self, call: RpcCall, values: dict[str, Any]) -> dict[str, Any]:
        return text_result("Nothing was logged.")

    def tool_test_input_required_result_elicitation(
        self, call: RpcCall, values: dict[str, Any]
    ) -> dict[str, Any]:
        name = answered(call, "user_name", "name")
        if not isinstance(name, str):
            return needed({"user_name": form("What is your name?", name="string")})
        return text_result(f"Hello, {name}!")

    def tool_test_input_required_result_sampling(
        self, call: RpcCall, values: dict[str, Any]
    ) -> dict[str, Any]:
        if call.params.get("inputResponses"):
            return text_result("The client's model has answered.")
        message = {"role": "user", "content": {"type": "text", "text": "The capital of France?"}}
        params = {"messages": [message], "maxTokens": 100}
        return needed({"capital": {"method": "sampling/createMessage", "params": params}})

    def tool_test_input_required_result_list_roots(
        self, call: RpcCall, values: dict[str, Any]
    ) -> dict[str, Any]:
        if call.params.get("inputResponses"):
            return text_result("The roots have come.")
        return needed({"client_roots": {"method": "roots/list", "params": {}}})

    def tool_test_input_required_result_request_state(
        self, call: RpcCall, values: dict[str, Any]
    ) -> dict[str, Any]:
        if opened(call) and answered(call, "confirm", "ok") is not None:
            return text_result("state-ok")
        return needed({"confirm": form("Please confirm", ok="boolean")}, "waiting")

    tool_test_input_required_result_tampered_state = tool_test_input_required_result_request_state

    def tool_test_input_required_result_multiple_inputs(
        self, call: RpcCall, values: dict[str, Any]
    ) -> dict[str, Any]:
        if opened(call):
            return text_result("All have come.")
        message = {"role": "user", "content": {"type": "text", "text": "A greeting, please."}}
        sampling = {"messages": [message], "maxTokens": 50}
        return needed(
            {
                "user_name": form("What is your name?", name="string"),
                "greeting": {"method": "sampling/createMessage", "params": sampling},
                "client_roots": {"method": "roots/list", "params": {}},
            },
            "several",
        )

    def tool_test_input_required_result_multi_round(
        self, call: RpcCall, values: dict[str, Any]
    ) -> dict[str, Any]:
        match opened(call):
            case "":
                return needed({"step1": form("What is your name?", name="string")}, "one")
            case "one":
                return needed({"step2": form("Your favorite color?", color="string")}, "two")
        return text_result("All rounds are done.")

    def tool_test_input_required_result_capabilities(
        self, call: RpcCall, values: dict[str, Any]
    ) -> dict[str, Any]:
        message = {"role": "user", "content": {"type": "text", "text": "A word, please."}}
        params = {"messages": [message], "maxTokens": 50}
        every = {
            "elicitation": {"user_name": form("What is your name?", name="string")},
            "sampling": {"word": {"method": "sampling/createMessage", "params": params}},
            "roots": {"client_roots": {"method": "roots/list", "params": {}}},
        }
        features = [every[name] for name in every if name in call.client.capabilities]
        requests = {key: request for some in features for key, request in some.items()}
        return needed(requests) if requests else text_result("Nothing can be asked.")


def embedded(uri: str) -> dict[str, Any]:
    resource = {"uri": uri, "mimeType": "text/plain", "text": "This is an embedded resource."}
    return {"type": "resource", "resource": resource}


async def _resources(call: RpcCall) -> dict[str, Any]:
    names = {"test://static-text": "text/plain", "test://static-binary": "image/png"}
    return {"resources": [{"uri": uri, "name": uri, "mimeType": m} for uri, m in names.items()]}


async def _templates(call: RpcCall) -> dict[str, Any]:
    return {"resourceTemplates": [{"uriTemplate": "test://template/{id}/data", "name": "data"}]}


async def _version(uri: str) -> Any:
    return 1 if uri.startswith("test://") else None


async def _read(call: RpcCall) -> dict[str, Any]:
    uri = call.text_param("uri")
    if uri == "test://static-text":
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "A static text."}]}
    if uri == "test://static-binary":
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PNG}]}
    if uri.startswith("test://template/"):
        text = f'{{"id": "{uri.split("/")[3]}", "templateTest": true}}'
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}
    code = rpc.INVALID_PARAMS if call.client.is_stateless else rpc.RESOURCE_NOT_FOUND
    raise RpcError(code, "There is no such resource.", {"uri": uri})


PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


async def _cities() -> list[str]:
    return ["paris", "parma", "prague"]


COMPLETED = {
    (name, argument): _cities for name, arguments in PROMPTS.items() for argument in arguments
}


async def _prompts(call: RpcCall) -> dict[str, Any]:
    return {
        "prompts": [
            {
                "name": name,
                "description": name,
                "arguments": [{"name": a, "required": True} for a in arguments],
            }
            for name, arguments in PROMPTS.items()
        ]
    }


async def _prompt(call: RpcCall) -> dict[str, Any]:
    name, arguments = call.text_param("name"), call.params.get("arguments") or {}
    if name not in PROMPTS:
        raise RpcError(rpc.INVALID_PARAMS, f"There is no prompt {name!r}.")
    content: dict[str, Any] = {"type": "text", "text": f"A prompt: {arguments}"}
    if name == "test_prompt_with_image":
        content = IMAGE
    if name == "test_prompt_with_embedded_resource":
        content = embedded(str(arguments.get("resourceUri")))
    if name == "test_input_required_result_prompt" and not call.params.get("inputResponses"):
        return needed({"user_context": form("In which context?", context="string")})
    return {"messages": [{"role": "user", "content": content}]}


def application() -> Any:
    """The suite has no token: it is given one on the way in. Everything else is as for anyone."""
    endpoint = McpEndpoint(RpcServer(Fixtures(), {"name": "fixtures", "version": "1"}))
    guard = AccessGuard(Starlette(routes=[endpoint.route]), Keyring([(TOKEN, OWNER)]))

    async def with_token(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [*scope["headers"], (b"authorization", f"Bearer {TOKEN}".encode())]
            scope = {**scope, "headers": headers}
        await guard(scope, receive, send)

    return with_token


if __name__ == "__main__":
    uvicorn.run(application(), port=int(sys.argv[1]), log_level="warning", lifespan="off")
