"""One value of a JSON text that a person keeps is set or taken out; everything else, comments and
layout too, stays as it is. The text is known to be an object, comments and last commas aside."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from retinue.formats.json_comments import without_comments, without_remarks

INDENT = "  "
_SPACE = re.compile(r"\s*")
_STEP = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_DECODER = json.JSONDecoder()


class Member(NamedTuple):
    """Its name begins at `at`, its value is from `start` to `stop`."""

    name: str
    at: int
    start: int
    stop: int


class JsonObject:
    """An object in a text, which begins at `at`, with its members, and ends at `close`."""

    def __init__(self, text: str, bare: str, at: int) -> None:
        self.text, self.bare, self.at = text, bare, at
        self.members: list[Member] = []
        here = _after_space(bare, at + 1)
        while bare[here] != "}":
            name, end = _DECODER.raw_decode(bare, here)
            start = _after_space(bare, _after_space(bare, end) + 1)
            _, stop = _DECODER.raw_decode(bare, start)
            self.members.append(Member(name, here, start, stop))
            here = _after_space(bare, stop)
            if bare[here] == ",":
                here = _after_space(bare, here + 1)
        self.close = here

    def named(self, name: str) -> Member | None:
        return next((member for member in self.members if member.name == name), None)

    def inner(self, member: Member) -> JsonObject:
        return JsonObject(self.text, self.bare, member.start)

    def comma_after(self, member: Member) -> int | None:
        """Where the comma behind a member is, one before the closing bracket too."""
        after = [other.at for other in self.members if other.at > member.at]
        stop = after[0] if after else self.close
        place = without_remarks(self.text).find(",", member.stop, stop)
        return None if place < 0 else place

    @property
    def space(self) -> str:
        """The space before its members."""
        first = self.members[0].at if self.members else None
        if first is not None and not self.text[self.text.rfind("\n", 0, first) + 1 : first].strip():
            return _line_space(self.text, first)
        return _line_space(self.text, self.at) + _step(self.text)


def with_value(text: str, path: Sequence[str], value: Any) -> str:
    """With this value at the path; objects on the way to it are made."""
    bare = without_comments(text)
    if not bare.strip():
        return with_value(f"{text.rstrip()}\n{{}}\n".lstrip(), path, value)
    holder = JsonObject(text, bare, bare.index("{"))
    for n, name in enumerate(path):
        member, is_last = holder.named(name), n == len(path) - 1
        if member is None:
            for outer in reversed(path[n + 1 :]):
                value = {outer: value}
            return _added(holder, name, value)
        if is_last:
            value_text = _dumped(text, value, _line_space(text, member.at))
            return text[: member.start] + value_text + text[member.stop :]
        holder = holder.inner(member)
    return text


def without_value(text: str, path: Sequence[str]) -> str:
    """Without the value at the path, and without the objects on the way that are empty then. What
    has a comment in it stays; "" when nothing is left."""
    holder = _holder(text, path[:-1])
    member = None if holder is None else holder.named(path[-1])
    if holder is None or member is None:
        return text
    new = _cut(holder, member)
    if len(path) == 1:
        return "" if new.split() in (["{}"], ["{", "}"]) else new
    outer = _holder(new, path[:-2])
    empty = None if outer is None else outer.named(path[-2])
    assert empty is not None
    space = new[empty.at : empty.stop]
    is_plain = without_remarks(space) == space
    is_empty = new[empty.start : empty.stop].split() in (["{}"], ["{", "}"])
    return without_value(new, path[:-1]) if is_plain and is_empty else new


def _holder(text: str, path: Sequence[str]) -> JsonObject | None:
    """The object at the path, None if there is none."""
    bare = without_comments(text)
    holder = JsonObject(text, bare, bare.index("{"))
    for name in path:
        member = holder.named(name)
        if member is None or bare[member.start] != "{":
            return None
        holder = holder.inner(member)
    return holder


def _added(holder: JsonObject, name: str, value: Any) -> str:
    """Behind the last member, on lines of its own."""
    text, space = holder.text, holder.space
    end = len(text[: holder.close].rstrip())
    head = text[:end]
    if holder.members and holder.comma_after(holder.members[-1]) is None:
        stop = holder.members[-1].stop
        head = f"{text[:stop]},{text[stop:end]}"
    tail = text[end:]
    line = "\r\n" if "\r\n" in text else "\n"
    if "\n" not in text[end : holder.close]:
        tail = line + _line_space(text, holder.at) + text[holder.close :]
    value_text = _dumped(text, value, space)
    return f"{head}{line}{space}{json.dumps(name, ensure_ascii=False)}: {value_text}{tail}"


def _cut(holder: JsonObject, member: Member) -> str:
    """Without the member, and without one of the commas beside it."""
    text, number = holder.text, holder.members.index(member)
    comma = holder.comma_after(member)
    tail = text[member.stop :]
    if comma is not None:
        tail = text[member.stop : comma] + text[comma + 1 :]
    start = len(text[: member.at].rstrip())
    if tail.partition("\n")[0].strip():  # what follows on its line may not join a comment
        start = member.at
    before = None
    if comma is None and number:
        before = holder.comma_after(holder.members[number - 1])
    head = text[:start] if before is None else text[:before] + text[before + 1 : start]
    return head + tail


def _dumped(text: str, value: Any, space: str) -> str:
    """On lines that begin with `space`, as the others do."""
    dump = json.dumps(value, indent=_step(text), ensure_ascii=False)
    return dump.replace("\n", ("\r\n" if "\r\n" in text else "\n") + space)


def _step(text: str) -> str:
    match = _STEP.search(text)
    return match[1] if match is not None else INDENT


def _line_space(text: str, at: int) -> str:
    """What the line of this place begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _after_space(bare: str, at: int) -> int:
    match = _SPACE.match(bare, at)
    assert match is not None
    return match.end()
