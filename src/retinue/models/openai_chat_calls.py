"""Assembles tool calls of Chat Completions from deltas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retinue.core.messages import ToolCall
from retinue.formats.safe_text import clean
from retinue.models.openai_chat_json import is_object

if TYPE_CHECKING:
    pass


@dataclass(slots=True)
class CallDraft:
    """A call on its way in."""

    id: str = ""
    name: str = ""
    args: list[str] = field(default_factory=list)

    def is_left(self, call_id: str, name: str, args: str, *, numbered: bool) -> bool:
        """Whether a delta in the place of this call begins another: some servers give each call the
        number 0, or no number, and some repeat the name in each delta."""
        if not name or not self.name:
            return False
        if call_id and self.id:
            return call_id != self.id
        if name != self.name:
            return bool(self.args) or not numbered
        is_seam = args.lstrip()[:1] == "{" and "".join(self.args[-1:]).rstrip()[-1:] == "}"
        # So few pieces only: a bound on the work.
        return is_seam and len(self.args) < 100 and is_object("".join(self.args))

    def take(self, call_id: str, name: str, args: str) -> None:
        self.id = self.id or call_id
        if not self.args and name:
            self.name = name if name.startswith(self.name) else self.name + name
        if args:
            self.args.append(args)


def named_calls(calls: list[CallDraft]) -> tuple[ToolCall, ...]:
    """The calls with ids that are there and differ."""
    out: dict[str, ToolCall] = {}
    for n, call in enumerate(calls):
        call_id, args = clean(call.id), clean("".join(call.args))
        while not call_id or call_id in out:
            call_id, n = f"call_{n}", n + len(calls)
        out[call_id] = ToolCall(
            id=call_id, name=clean(call.name), arguments_json=args if args.strip() else "{}"
        )
    return tuple(out.values())
