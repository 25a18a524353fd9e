"""`offline/explorer`: a model that needs no key. It is a pure function of the conversation and the
tools: it reads the task, asks for tool calls, reads their results, and writes a report in which
every statement has its file and line."""

from __future__ import annotations

from retinue.models.explorer.model import ExplorerModel

__all__ = ["ExplorerModel"]
