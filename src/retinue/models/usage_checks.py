"""The usage of a call as the provider reports it, if it is plausible: missing, impossible or
shrinking counts are replaced by an estimate from the bytes. All dialects pass here."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.messages import ModelReply
from retinue.core.values import ModelInfo, Usage

BYTES_PER_TOKEN = 4
ADDED = 16_384
"""So many tokens a gateway may put before a prompt; more than that and more than its bytes no
prompt has."""
PREAMBLE = {"anthropic": 1_024, "gemini": 512, "openai_chat": 512, "openai_responses": 512}
"""What a dialect's providers add by themselves. Anthropic's instructions for the use of tools are
159 to 530 tokens in its own list, by model and choice; templates of the others have a date, rules
for calls, marks around each message."""


class RequestSize(Struct, frozen=True):
    """What was sent: `size` bytes, of which replies of `max_output` tokens were permitted. With
    `is_open` the provider may read more than it was sent, because it was asked to search or the
    like."""

    size: int
    max_output: int
    info: ModelInfo
    is_open: bool = False

    @property
    def prompt(self) -> int:
        """A fair guess of the prompt's tokens. (Pictures are many bytes and few tokens: the window
        is the end.)"""
        return min(self.size // BYTES_PER_TOKEN, self.info.window)

    def is_prompt(self, tokens: int) -> bool:
        """Whether a prompt can have so many tokens: none has more than bytes, and none is twice
        what a model reads."""
        most = 2 * (self.info.window + self.info.max_output)
        return (
            0
            < tokens
            <= (most if self.is_open else min(most, self.size + self.info.preamble + ADDED))
        )


def with_cost(reply: ModelReply, size: RequestSize) -> ModelReply:
    """A whole reply with what it has cost. Nearly all counts can be believed as they are."""
    usage = reply.usage
    is_plain = (
        0 < usage.output <= size.max_output
        and usage.cache_read + usage.cache_write <= usage.input
        and not (usage.estimated or usage.nanos)
        and size.is_prompt(usage.input)
    )
    if not is_plain:
        used = believed(usage, length(reply), size)
        return reply if used == usage else replace(reply, usage=used)
    price = size.info.cost_of(usage)
    return replace(reply, usage=replace(usage, nanos=price)) if price else reply


def believed(usage: Usage, n_bytes: int, size: RequestSize, *, is_whole: bool = True) -> Usage:
    """What a reply of `said` characters has cost. Tokens that were not counted, or cannot have
    been, are in `estimated`. No usage at all is left to the code that has a bound, unless the reply
    was interrupted."""
    if is_whole and not usage.tokens:
        return Usage()
    estimated = 0 if size.is_prompt(usage.input) else size.prompt
    prompt = 0 if estimated else usage.input
    permitted = max(size.max_output, n_bytes)
    output = min(usage.output, permitted)
    if not is_whole or not output:
        estimated += max(0, min(-(-n_bytes // BYTES_PER_TOKEN), permitted) - output)
    read = min(usage.cache_read, prompt)
    write = min(usage.cache_write, prompt - read)
    used = Usage(
        input=prompt, output=output, cache_read=read, cache_write=write, estimated=estimated
    )
    if not estimated:
        price = size.info.cost_of(used)
        return replace(used, nanos=price) if price else used
    # What is estimated of a prompt is priced as if all of it were written to a cache.
    unread = 0 if prompt else size.prompt
    guess = size.info.cost(unread, estimated - unread)
    return replace(used, nanos=size.info.cost_of(used) + guess, nanos_estimated=guess)


def never_smaller(before: Usage, usage: Usage) -> Usage:
    """Counts of a stream are totals: one that is smaller than an earlier one is not believed."""
    return Usage(
        input=max(before.input, usage.input),
        output=max(before.output, usage.output),
        cache_read=max(before.cache_read, usage.cache_read),
        cache_write=max(before.cache_write, usage.cache_write),
    )


def length(reply: ModelReply) -> int:
    """Characters of a reply: what it says, calls, and has thought as far as that was shown."""
    message = reply.message
    size = len(message.text) + len(message.opaque)
    for call in message.calls:
        size += len(call.name) + len(call.arguments_json)
    return size
