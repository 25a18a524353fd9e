"""Words that the public API had before it was named: none of them comes back."""

from __future__ import annotations

import inspect

import pytest

import retinue
from retinue.core.spec import RunRequest
from retinue.core.values import Permissions, checked
from retinue.tools.base import Context

CLASSES = [
    "Answer",
    "Assistant",
    "Call",
    "Caller",
    "Capabilities",
    "ChildEnd",
    "Delta",
    "Node",
    "Order",
    "Orders",
    "Reply",
    "Request",
    "Result",
    "Rules",
    "Send",
    "User",
    "Wait",
]
OF_A_RUN = [
    "access",
    "orphans",
    "bond",
    "news",
    "host",
    "results",
    "compose",
    "loaded",
    "keep_whole",
    "share",
    "weight",
    "clock",
    "unknown_tool",
    "context",
]
OF_RETINUE = ["narrow", "drain", "list", "dormant", "trouble"]
OF_A_CALL = ["look", "back", "at", "woken", "held", "bounds", "order", "id"]


def test_no_old_name_is_public() -> None:
    assert [name for name in CLASSES if hasattr(retinue, name)] == []
    assert set(OF_A_RUN) & set(RunRequest.__struct_fields__) == set()
    assert [name for name in OF_RETINUE if hasattr(retinue.Retinue, name)] == []
    assert [name for name in OF_A_CALL if hasattr(Context, name)] == []
    assert "data" not in retinue.Outcome.__struct_fields__
    options = inspect.signature(retinue.Retinue.__init__).parameters
    assert {"rules", "unsafe_bare"} & set(options) == set()


def test_a_wrong_value_is_told_by_the_name_that_programs_use() -> None:
    """Stored data keeps its words; who makes a mistake in a program never wrote them."""
    bad = RunRequest(agent="a", task="t", permissions=Permissions(may_spawn="yes"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\$\.permissions\.may_spawn"):
        checked(bad)
    tools = RunRequest(agent="a", task="t", permissions=Permissions(tools=(1,)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\$\.permissions\.tools\[0\]"):
        checked(tools)
