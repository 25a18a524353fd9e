"""Projects that are repositories, and models that make calls in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.private_home import PrivateHome
from tests.security.holes import make_repository

ISOLATED = json.dumps({"one": {"description": "d", "prompt": "p", "isolation": "worktree"}})


def turns(*calls: Any) -> Any:
    """A model that makes these calls, one each turn, and then repeats what it was told."""

    def model(request: Any) -> Any:
        texts = [m.text for m in request.messages if type(m).__name__ == "ToolMessage"]
        return calls[len(texts)] if len(texts) < len(calls) else "\n=====\n".join(texts)

    return model


def played(home: PrivateHome, *options: str) -> list[str]:
    result = home.real("run", "--yolo", "-p", *options, "go")
    assert result.returncode == 0, result.stderr
    return result.stdout.split("\n=====\n")


def ready(home: PrivateHome) -> Path:
    (home.project / ".git").rmdir()
    home.project.rmdir()
    return make_repository(home.project)
