"""One value for each shape that is ever written down, so that a change of names in the code changes
no stored byte.

`python -m tests.store.stored_samples` writes the values of today's code into a new file beside the
older ones, which are never changed: whoever has written such bytes wants to read them again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from retinue.agent_files.agent_spec import AgentSpec
from retinue.config import trust_record
from retinue.core.account import Account
from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.model_price import Price
from retinue.core.model_settings import ModelSettings
from retinue.core.spec import RunSpec
from retinue.core.state import Run
from retinue.core.task_list import Act
from retinue.core.values import Definition, Delivery, Limits, Mail, ModelInfo, Permissions
from retinue.host.plan import Plan
from retinue.sandbox import branch_diff, branch_merge
from retinue.tools.builtin import command_record
from retinue.tools.mcp_client import approvals
from retinue.tools.mcp_client.oauth import login_file

FOLDER = Path(__file__).with_name("fixtures")
ROLES: dict[str, Any] = {
    "entry of the log": LogEntry,
    "run": Run,
    "spec of a run": RunSpec,
    "message": Message,
    "account": Account,
    "mail": Mail,
    "delivery": Delivery,
    "definition of an agent": Definition,
    "model": ModelInfo,
    "act on the task list": Act,
    "plan": Plan,
    "agent of a plan": AgentSpec,
    "trusted projects": trust_record._TrustFile,
    "approved servers": approvals.ApprovedServers,
    "logins to servers": login_file.LoginRecords,
    "note on a worktree": branch_diff.WorktreeNote,
    "plan of a merge": branch_merge.MergePlan,
    "start of a command": command_record.CommandStart,
    "end of a command": command_record.CommandEnd,
}
DEEPEST = 12
CHECKED: dict[tuple[type, str], list[Any]] = {
    # A model's price is the same in dollars as in nano-dollars.
    **{(Price, name): [0.007] for name in ("input", "output", "cache_read", "cache_write")},
    (Permissions, "mode"): ["manual"],
    (Limits, "mode"): ["manual"],
    (ModelSettings, "temperature"): [0.5],
    (ModelSettings, "top_p"): [0.5],
}
"""Fields whose values are checked when they are read."""


def samples(kind: Any) -> list[Any]:
    """Values, as JSON has them, in which every class and every literal that a type admits
    occurs."""
    return list(_values(inspect.type_info(kind), ()))


def _values(info: inspect.Type, above: tuple[type, ...]) -> Iterator[Any]:
    match info:
        case inspect.Metadata():
            yield from _values(info.type, above)
        case inspect.UnionType():
            for member in info.types:
                yield from _values(member, above)
        case inspect.StructType():
            yield from _structs(info, above)
        case inspect.DictType():
            yield from ({"key": value} for value in _values(info.value_type, above))
        case (
            inspect.ListType()
            | inspect.VarTupleType()
            | inspect.SetType()
            | inspect.FrozenSetType()
        ):
            yield from ([value] for value in _values(info.item_type, above))
        case inspect.TupleType():
            yield [next(_values(item, above)) for item in info.item_types]
        case inspect.LiteralType():
            yield from info.values
        case inspect.BoolType():
            yield True
            yield False
        case inspect.IntType():
            yield 7
        case inspect.FloatType():
            yield 2.5
        case inspect.StrType():
            yield "ä text"
        case inspect.BytesType():
            yield "Ynl0ZXM="
        case inspect.NoneType():
            yield None
        case inspect.AnyType() | inspect.RawType():
            yield {"any": [1, "two", None]}
        case _:
            raise AssertionError(f"nothing is known of {info}")


def _structs(info: inspect.StructType, above: tuple[type, ...]) -> Iterator[Any]:
    again = info.cls in above or len(above) > DEEPEST
    fields = [f for f in info.fields if f.required or not again]
    checks = {
        f.encode_name: CHECKED.get((info.cls, f.name)) or list(_values(f.type, (*above, info.cls)))
        for f in fields
    }
    tag = {info.tag_field: info.tag} if info.tag_field is not None else {}
    for n in range(max((len(values) for values in checks.values()), default=1) or 1):
        yield tag | {name: values[n % len(values)] for name, values in checks.items() if values}


def lines() -> Iterator[str]:
    for role, kind in ROLES.items():
        encode, decode = msgspec.json.encode, msgspec.json.Decoder(kind).decode
        for value in samples(kind):
            yield json.dumps(
                {"role": role, "json": encode(decode(encode(value))).decode()}, ensure_ascii=False
            )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    n = 1 + len(list(FOLDER.glob("stored_*.jsonl")))
    frozen_lines = {
        line
        for file in FOLDER.glob("stored_*.jsonl")
        for line in file.read_text("utf-8").splitlines()
    }
    new = [line for line in dict.fromkeys(lines()) if line not in frozen_lines]
    if new:
        (FOLDER / f"stored_{n}.jsonl").write_text("\n".join(new) + "\n", encoding="utf-8")
