"""The official client of OpenAI, pointed at a service of ours."""

from __future__ import annotations

import json
from typing import Any

from openai import AsyncOpenAI, OpenAI

from tests.host.served import ALICE, Served
from tests.waiting import SECONDS

WEATHER = {
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
CHAT_TOOLS: Any = [{"type": "function", "function": WEATHER}]
RESPONSE_TOOLS: Any = [{"type": "function", **WEATHER}]


def client_of(api: Served, token: str = ALICE) -> OpenAI:
    return OpenAI(base_url=f"http://127.0.0.1:{api.port}/v1", api_key=token, timeout=SECONDS)


def async_client_of(api: Served, token: str = ALICE) -> AsyncOpenAI:
    place = f"http://127.0.0.1:{api.port}/v1"
    return AsyncOpenAI(base_url=place, api_key=token, timeout=SECONDS)


def says(text: str, role: str = "user") -> Any:
    return {"role": role, "content": text}


def n_runs(api: Served) -> int:
    return len(api.get("/runs").json["runs"])


def data_of(body: bytes) -> list[Any]:
    """The events of a stream without names."""
    lines = [line[6:] for line in body.decode().split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]
