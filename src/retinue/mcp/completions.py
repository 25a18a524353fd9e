"""Completes arguments: of a prompt, or of the address of a resource."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from retinue.mcp import rpc_messages as rpc
from retinue.mcp.rpc_messages import RpcError
from retinue.mcp.rpc_server import RpcCall

MOST_VALUES = 100
"""That the protocol lets a response have."""

Values = Callable[[], Awaitable[Sequence[str]]]
Completed = Mapping[tuple[str, str], Values]
"""By the name of a prompt or the template of a resource, and the name of an argument."""


async def completion(call: RpcCall, known: Completed) -> dict[str, Any]:
    """The values that begin with what is typed. An argument that is not known is an error."""
    ref, argument = call.params.get("ref"), call.params.get("argument")
    fields = ref if isinstance(ref, dict) else {}
    kind = fields.get("type")
    owner = fields.get("uri" if kind == "ref/resource" else "name")
    argument_map = argument if isinstance(argument, dict) else {}
    name, typed = argument_map.get("name"), argument_map.get("value")
    if kind not in ("ref/prompt", "ref/resource") or not isinstance(typed, str):
        text = "completion/complete needs ref, a prompt or a resource, and argument with a value."
        raise RpcError(rpc.INVALID_PARAMS, text)
    values = known.get((owner, name)) if isinstance(owner, str) and isinstance(name, str) else None
    if values is None:
        raise RpcError(rpc.INVALID_PARAMS, "Unknown prompt, resource or argument.")
    fitting_values = [value for value in await values() if value.startswith(typed)]
    return {
        "completion": {
            "values": fitting_values[:MOST_VALUES],
            "total": len(fitting_values),
            "hasMore": len(fitting_values) > MOST_VALUES,
        }
    }


async def no_values() -> Sequence[str]:
    """Of an argument that can be anything."""
    return ()
