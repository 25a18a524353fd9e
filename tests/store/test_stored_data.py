"""What was written down once is read again, and written again as it was, whatever the code calls it
now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from tests.store.stored_samples import FOLDER, ROLES, lines

FILES = sorted(FOLDER.glob("stored_*.jsonl"))


def includes(now: Any, then: Any) -> bool:
    """Whether everything of an older value is in a newer one: fields may have been added, and
    nothing else."""
    if isinstance(then, dict) and isinstance(now, dict):
        return all(key in now and includes(now[key], value) for key, value in then.items())
    if isinstance(then, list) and isinstance(now, list):
        return len(now) == len(then) and all(map(includes, now, then))
    return type(now) is type(then) and now == then


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_was_stored_is_read_and_written_as_it_was(file: Path) -> None:
    decoders = {role: msgspec.json.Decoder(kind).decode for role, kind in ROLES.items()}
    record = set()
    for line in file.read_text("utf-8").splitlines():
        stored = json.loads(line)
        again = msgspec.json.encode(decoders[stored["role"]](stored["json"]))
        assert includes(json.loads(again), json.loads(stored["json"])), stored["role"]
        record.add(stored["role"])
    assert record, "a file without a line proves nothing"


def test_every_stored_shape_of_today_is_among_the_samples() -> None:
    """A line that is missing is a new shape: `python -m tests.store.stored_samples` adds it. One
    that is there already with another name or tag is a mistake, which the test above finds."""
    name = {line for file in FILES for line in file.read_text("utf-8").splitlines()}
    assert [line for line in lines() if line not in name] == []


def test_every_event_state_and_message_occurs() -> None:
    from retinue.core.events import AnyEvent
    from retinue.core.state import State

    text = "".join(file.read_text("utf-8") for file in FILES)
    tags = [kind.__struct_config__.tag for kind in (*get_args(AnyEvent), *State.__subclasses__())]
    assert len(tags) >= 43 and [tag for tag in tags if f'\\"{tag}\\"' not in text] == []
