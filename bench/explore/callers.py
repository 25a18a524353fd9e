"""Calls drawn at random, checked against the text by rules that know nothing of syntax trees."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from retinue.syntax.source_tree import SourceTree

SAMPLE = 200
SEED = 20261118
BARE = ("ruby", "bash")
"""Languages that call without parentheses."""
DEFINES = re.compile(r"\b(?:def|func|fn|function|class|struct|sub|macro_rules!)\s+$")
COMMENT = re.compile(r"^\s*(?:#(?!\s*define|\[)|//|\*(?!\w)|/\*)")


@dataclass
class CallCheck:
    checked: int = 0
    false: list[str] = field(default_factory=list)
    how: Counter[str] = field(default_factory=Counter)


def check(trees: dict[str, tuple[Path, SourceTree]]) -> CallCheck:
    """Draw calls from all trees alike, and look each up in its file."""
    out = CallCheck()
    draw = random.Random(SEED)
    names = sorted(trees)
    for n in range(SAMPLE):
        root, tree = trees[names[n % len(names)]]
        paths = [p for p, f in sorted(tree.parsed.items()) if f.calls]
        path = draw.choice(paths)
        facts = tree.parsed[path]
        call = draw.choice(facts.calls)
        lines = (root / path).read_text(encoding="utf-8", errors="replace").split("\n")
        around = facts.around(call)
        how = _found(call.name, lines, call.line, tree.files[path].language in BARE)
        if how and around is not None:
            inside = around.line <= call.line <= around.end
            named = around.name.strip("~") in "\n".join(lines[around.line - 1 : around.line + 2])
            how = how if inside and named else ""
        out.checked += 1
        if how:
            out.how[how] += 1
        else:
            out.false.append(f"{names[n % len(names)]}: {path}:{call.line} {call.name}")
    return out


def _found(name: str, lines: list[str], number: int, is_bare: bool) -> str:
    """How the text at a line calls the name, or ""."""
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    rest = "\n".join(lines[number - 1 : number + 3])
    for match in re.finditer(rf"(?<![\w$]){re.escape(name)}(?![\w$])", line):
        before, behind = line[: match.start()], rest[match.end() :]
        if DEFINES.search(before) or COMMENT.match(line):
            continue
        if re.match(r"\s*(?:!\s*)?(?:::)?(?:<[^;{}]{0,200}?>)?\s*[(\[{]", behind):
            return "a parenthesis follows"
        if re.match(r"\s*(?:`|\?\.\()", behind) or re.search(r"\bnew\s+[\w.\\]*$", before):
            return "new, or a template"
        if is_bare:
            return "a command or a call without parentheses"
    return ""
