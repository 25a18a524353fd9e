"""The attribute names of the GenAI conventions that backends read, and their values for an event.
The conventions are still in development, so the names are spelled out here and nowhere else."""

from __future__ import annotations

from typing import Any

from retinue.core.values import NANOS_PER_USD, Usage
from retinue.events import ModelReplied, ModelRetried, RunEnded, RunStarted, ToolReturned
from retinue.formats.safe_text import one_line

PROVIDERS = {
    "azure": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "openai-chat": "openai",
    "xai": "x_ai",
}
"""Providers that the conventions call otherwise."""
OTHER_PROVIDER = "custom"
"""Of a model that is an object of the program."""
FAILED = ("failed", "timed_out", "interrupted")
"""Ends of a run that are errors; being cancelled or coming to a limit is not."""
NAME_LENGTH = 200
SPAN_KINDS = {"invoke_agent": "AGENT", "chat": "LLM", "execute_tool": "TOOL"}
"""The same for backends that read OpenInference."""


def short_name(text: str) -> str:
    """A name on one line: a model can call what no tool is called."""
    return one_line(text, NAME_LENGTH)


def model_attributes(requested: str, used: str = "") -> dict[str, Any]:
    """A model's name, without its provider, and the provider. Of a chain or an alias, the provider
    is that of the model that answered."""
    provider, colon, model = requested.partition(":")
    if "|" in requested or not colon:
        provider, model = used.partition(":")[0] if ":" in used else "", requested
    out = {
        "gen_ai.provider.name": PROVIDERS.get(provider, provider) or OTHER_PROVIDER,
        "gen_ai.request.model": short_name(model),
    }
    if used:
        out["gen_ai.response.model"] = short_name(used.partition(":")[2] or used)
    return out


def usage_attributes(usage: Usage) -> dict[str, Any]:
    """Tokens and, where a price is known, dollars. What was not counted by the provider, and what
    that costs at most, have names of their own: backends add up facts."""
    out: dict[str, Any] = {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
    }
    if usage.cache_read:
        out["gen_ai.usage.cache_read.input_tokens"] = usage.cache_read
    if usage.cache_write:
        out["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write
    if usage.estimated:
        out["retinue.usage.estimated_tokens"] = usage.estimated
    return out | _dollars(usage, "operation.cost", "retinue.usage.estimated_usd")


def _dollars(usage: Usage, sure: str, estimated: str) -> dict[str, float]:
    """What is known to have been paid, and what is only known not to be more, under these
    names."""
    parts = {sure: usage.nanos - usage.nanos_estimated, estimated: usage.nanos_estimated}
    return {name: nanos / NANOS_PER_USD for name, nanos in parts.items() if nanos > 0}


def shared_attributes(operation: str, start: RunStarted, conversation: str) -> dict[str, Any]:
    """What all spans of a run have. `conversation` is that of the whole tree."""
    return {
        "gen_ai.operation.name": operation,
        "openinference.span.kind": SPAN_KINDS[operation],
        "gen_ai.agent.name": short_name(start.agent),
        "gen_ai.conversation.id": conversation,
        "session.id": conversation,
        "retinue.run.id": str(start.run),
        "retinue.root.id": str(start.root),
    }


def run_attributes(start: RunStarted) -> dict[str, Any]:
    """What is known of a run when it starts."""
    out = {
        **model_attributes(start.model),
        "retinue.run.label": short_name(start.label),
        "retinue.run.depth": start.depth,
    }
    own = {name: text for name, text in start.meta.items() if name != "traceparent"}
    return out | {f"retinue.meta.{name}": text for name, text in own.items()}


def end_attributes(end: RunEnded) -> dict[str, Any]:
    """Sums are under names of our own: backends add up the model calls below a span by
    themselves."""
    out: dict[str, Any] = {
        "retinue.run.state": end.state,
        "retinue.run.stop": end.stop,
        "retinue.tree.input_tokens": end.tree_usage.input,
        "retinue.tree.output_tokens": end.tree_usage.output,
        "retinue.run.turns": end.usage.turns,
    }
    out |= _dollars(end.tree_usage, "retinue.tree.usd", "retinue.tree.estimated_usd")
    if end.tree_usage.estimated:
        out["retinue.tree.estimated_tokens"] = end.tree_usage.estimated
    if end.state in FAILED:
        out["error.type"] = end.stop or end.state
    return out


def reply_attributes(start: RunStarted, event: ModelReplied | ModelRetried) -> dict[str, Any]:
    if isinstance(event, ModelRetried):
        failure = {"error.type": event.kind or "model_error", "retinue.attempt": event.attempt}
        return model_attributes(start.model) | failure
    reason = "tool_call" if event.calls else "stop"
    out = model_attributes(start.model, event.model) | usage_attributes(event.usage)
    return out | {"gen_ai.response.finish_reasons": (reason,), "retinue.turn": event.turn}


def tool_attributes(name: str, call_id: str) -> dict[str, Any]:
    return {
        "gen_ai.tool.name": short_name(name),
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": short_name(call_id),
    }


def result_attributes(event: ToolReturned) -> dict[str, Any]:
    if event.is_denied:
        return {"error.type": "denied"}
    return {"error.type": "tool_error"} if event.is_error else {}
