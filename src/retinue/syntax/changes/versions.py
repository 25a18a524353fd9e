"""Both versions of each changed file, parsed by workers."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import msgspec

from retinue.syntax.c_preparation import attribute_macros
from retinue.syntax.changes.change_set import ChangeSet
from retinue.syntax.changes.code_tokens import CodeTokens
from retinue.syntax.changes.review import Parsed, to_parse
from retinue.syntax.facts import FileFacts
from retinue.syntax.worker import ParseJob
from retinue.syntax.worker_pool import answers

C_FAMILY = ("c", "cpp")


def parsed_versions(changes: ChangeSet, stop: Event) -> Parsed:
    """The facts and tokens of what can be parsed; a version that cannot is not in it."""
    versions = to_parse(changes)
    macros = attribute_macros(data for _, language, data in versions if language in C_FAMILY)

    def source(n: int) -> Callable[[], ParseJob]:
        (path, _), language, data = versions[n]
        macro_set = macros if language in C_FAMILY else None
        return lambda: ParseJob(path, language, data, macro_set, has_tokens=True)

    parsed: Parsed = {}
    jobs = [source(n) for n in range(len(versions))]
    for number, reply in answers(jobs, len(jobs), stop):
        if reply.facts and reply.tokens:
            parsed[versions[number][0]] = (
                msgspec.msgpack.decode(reply.facts, type=FileFacts),
                msgspec.msgpack.decode(reply.tokens, type=CodeTokens),
            )
    return parsed
