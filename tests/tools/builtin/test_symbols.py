"""`symbols` sees what its run may read, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from retinue.core.redaction import Redactor
from retinue.sandbox.private_paths import Private
from tests.tools.builtin.file_tool_support import Desk, tree

FILES: dict[str, str | bytes] = {
    "src/a.py": "from src.b import target\n\ndef caller():\n    target()\n",
    "src/b.py": 'def target():\n    """Does it."""\n',
    "secret/c.py": "def target():\n    pass\n\ndef other():\n    target()\n",
}


def paths(answer: str) -> set[str]:
    (name,) = json.loads(answer)["names"]
    return {d["path"] for d in name.get("definitions", [])} | {
        c["path"] for c in name.get("calls", [])
    }


def asked(root: Path, text: str = "`target`", path: str = ".", **fields: Any) -> set[str]:
    return paths(Desk(root, **fields).ok("symbols", text=text, path=path))


def test_a_name_has_its_definitions_and_callers(tmp_path: Path) -> None:
    answer = json.loads(Desk(tree(tmp_path, FILES)).ok("symbols", text="who calls `target`?"))
    (name,) = answer["names"]
    assert [(c["path"], c["line"], c["around"]) for c in name["calls"]] == [
        ("secret/c.py", 5, "other"),
        ("src/a.py", 4, "caller"),
    ]
    assert asked(tmp_path, path="src") == {"a.py", "b.py"}


def test_a_rule_against_reading_a_file_holds_here_too(tmp_path: Path) -> None:
    tree(tmp_path, FILES)
    for rule in ("deny: read(secret/**)", "deny: search(secret/**)", "deny: symbols(secret/**)"):
        assert asked(tmp_path, rules=(rule,)) == {"src/a.py", "src/b.py"}, rule


def test_what_is_outside_of_the_roots_is_refused(tmp_path: Path) -> None:
    root = tree(tmp_path / "mine", FILES)
    tree(tmp_path / "other", {"x.py": "def target(): pass\n"})
    desk = Desk(root)
    for path in ("../other", str(tmp_path / "other"), "/", "src/a.py", "nowhere"):
        assert desk.no("symbols", text="target", path=path)
    os.symlink(tmp_path / "other", root / "link")
    assert desk.no("symbols", text="target", path="link")
    assert asked(root) == {"src/a.py", "src/b.py", "secret/c.py"}


def test_private_files_are_not_there_nor_under_a_second_name(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree", FILES)
    store = root / "runs.py"
    store.write_text("def target(): pass\n", encoding="utf-8")
    os.link(store, root / "twin.py")
    private = Private(store=str(store))
    assert asked(root, private=private) == {"src/a.py", "src/b.py", "secret/c.py"}


def test_a_known_secret_is_taken_out_of_what_is_shown(tmp_path: Path) -> None:
    value = "hunter2hunter2hunter2"
    tree(tmp_path, {"a.py": f'def target():\n    """Uses {value}."""\n    call("{value}")\n'})
    desk = Desk(tmp_path, redactor=Redactor({"KEY": value}))
    answer = desk.ok("symbols", text="target")
    assert value not in answer and "[redacted:KEY]" in answer
    json.loads(answer)


def test_wrong_arguments_are_answered(tmp_path: Path) -> None:
    desk = Desk(tree(tmp_path, FILES))
    assert "unknown question 'fnd'" in desk.no("symbols", question="fnd")
    assert "more than 2000 characters" in desk.no("symbols", text="x" * 3_000)
    assert "Invalid parameters" in desk.no("symbols", txt="x")
    assert json.loads(desk.ok("symbols", text=""))["words"]["words"] == []
    assert json.loads(desk.ok("symbols", text="`(((`"))
