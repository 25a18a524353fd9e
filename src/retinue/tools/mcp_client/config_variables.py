"""Variables and inputs in a server's configuration, and their values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinue.formats.safe_text import reveal
from retinue.tools.mcp_client.server_config import ComplaintKind, ServerConfigSource

VARIABLE = re.compile(r"\$\{(?:(env|input):)?([A-Za-z_][A-Za-z0-9_.-]*)(?::-([^}]*))?\}")


class Wrong(Exception):
    def __init__(self, field: str, text: str, kind: ComplaintKind = "wrong") -> None:
        super().__init__(text)
        self.field, self.kind = field, kind


@dataclass(frozen=True, slots=True)
class Expander:
    """`${VAR}` and `${VAR:-default}`; in files of VS Code also `${env:VAR}`, `${input:id}` and
    `${workspaceFolder}`. Anything else stays as it is: it may be meant for a shell."""

    environ: Mapping[str, str]
    inputs: Mapping[str, str]
    asked: Mapping[str, Any]
    source: ServerConfigSource

    def __call__(self, text: str, field: str) -> str:
        return VARIABLE.sub(lambda m: self._value(m, field), text)

    def _value(self, match: re.Match[str], field: str) -> str:
        prefix, name, default = match.groups()
        is_vscode = self.source.dialect == "vscode"
        if (prefix and not is_vscode) or (("." in name or "-" in name) and prefix != "input"):
            return match[0]
        if prefix == "input":
            if name not in self.inputs:
                about = self.asked.get(name, {}).get("description")
                description = f" ({reveal(about, keep='')[:200]})" if isinstance(about, str) else ""
                raise Wrong(
                    field,
                    f"the input {name!r}{description} is needed, "
                    "and no one can be asked for it here",
                    "unset",
                )
            return self.inputs[name]
        if is_vscode and name == "workspaceFolder" and self.source.file:
            folder = Path(self.source.file).absolute().parent
            return str(folder.parent if folder.name == ".vscode" else folder)
        value = self.environ.get(name) or default
        if value is None and name in self.environ:
            return ""
        if value is None:
            raise Wrong(
                field,
                f"the variable {name} is not set; set it, or write a default: ${{{name}:-...}}",
                "unset",
            )
        return value
