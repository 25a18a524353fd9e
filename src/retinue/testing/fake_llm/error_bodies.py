"""Error bodies in the format of each provider."""

from __future__ import annotations

from typing import Any

from retinue.testing.fake_llm.dialect import FakeError
from retinue.testing.fake_llm.fake_request import FakeRequest

RPC = "type.googleapis.com/google.rpc"


def by_dialect(
    scene: FakeRequest, anthropic: FakeError, openai: FakeError, gemini: FakeError
) -> FakeError:
    match scene.api.dialect:
        case "anthropic":
            return anthropic
        case "gemini":
            return gemini
        case _:
            return openai


def anthropic_error(status: int, kind: str, message: str, **more: Any) -> FakeError:
    return FakeError(status, kind, message, **more)


def openai_error(
    status: int, message: str, code: str | None = None, kind: str = "server_error", **more: Any
) -> FakeError:
    return FakeError(status, kind, message, code=code, **more)


def gemini_error(status: int, kind: str, message: str, **more: Any) -> FakeError:
    return FakeError(status, kind, message, **more)
