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
