"""`make explore`: the explorer's facts against universal-ctags, the TypeScript compiler, the text
of calls and the sample maps, and its times. The last line is one JSON object with all figures."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.explore import callers, compiler, ctags, find_reports, sample_maps, timing
from bench.explore.comparison import UNSEEN, Figures, compare, ours
from bench.explore.trees import TREES, RealTree, Unavailable, fetch
from retinue.syntax.source_tree import SourceTree
from retinue.syntax.syntax_engine import SyntaxEngine
from retinue.syntax.tree_files import folder_files

RESULT = Path(__file__).parents[1] / "results" / "explore.json"
GOAL = 0.98
FAMILIES = {"typescript": ("typescript", "tsx")}


def main() -> int:
    trees: dict[str, tuple[Path, SourceTree]] = {}
    missing: list[str] = []
    for tree in TREES:
        try:
            root = fetch(tree)
            trees[tree.name] = (root, read(root))
            print(f"{tree.name} {tree.version}: {len(trees[tree.name][1].parsed)} files parsed")
        except Unavailable as error:
            missing.append(str(error))
            print(f"missing: {error}")
    definitions = compared(trees, missing)
    calls = callers.check(trees) if trees else callers.CallCheck()
    with tempfile.TemporaryDirectory() as cache:
        reports = find_reports.check(trees, Path(cache))
    maps = {n: sample_maps.compare(n, trees[n][1]) for n in sample_maps.EXPECTED if n in trees}
    times = timing.measure(trees["django"][0]) if "django" in trees else {}
    result: dict[str, object] = {
        "trees": [f"{t.name} {t.version} ({t.origin})" for t in TREES if t.name in trees],
        "missing": missing,
        "rules": [*ctags.RULES, *compiler.RULES, *sorted(set(UNSEEN.values()))],
        "definitions": {k: f.row() for k, f in sorted(definitions.items())},
        "callers": {"checked": calls.checked, "false": calls.false, "how": dict(calls.how)},
        "find_reports": reports,
        "sample_maps": maps,
        "times": times,
        "not_compared": "C#, Bash and Kotlin: ctags is no oracle for them",
    }
    reasons = why_not(definitions, calls, maps, times, missing)
    reasons += [f"a place in a report of find is wrong: {w}" for w in reports["wrong"][:5]]
    result = {"ok": not reasons, "reasons": reasons, **result}
    if trees and not missing:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))
    return 0 if result["ok"] else 1


def read(root: Path) -> SourceTree:
    engine = SyntaxEngine()
    with folder_files(str(root)) as files:
        return engine.read_tree(files)


def compared(trees: dict[str, tuple[Path, SourceTree]], missing: list[str]) -> dict[str, Figures]:
    """Precision and recall of each language, callables and types apart."""
    out: dict[str, Figures] = {}
    for tree in (t for t in TREES if t.name in trees):
        for language in tree.languages:
            try:
                _compare(tree, language, *trees[tree.name], out)
            except (Unavailable, subprocess.SubprocessError, OSError) as error:
                missing.append(f"{tree.name}, {language}: {error}")
    for key, figures in sorted(out.items()):
        print(
            f"{key:24} P {figures.precision:.4f}  R {figures.recall:.4f}  of {figures.both}"
            + "".join(f"; left out: {n} {why}" for why, n in sorted(figures.unseen.items()))
        )
    return out


def _compare(
    tree: RealTree, language: str, root: Path, result: SourceTree, out: dict[str, Figures]
) -> None:
    languages = FAMILIES.get(language, (language,))
    files = [p for p in result.parsed if result.files[p].language in languages]
    is_script = language in ("javascript", "typescript")
    theirs = compiler.tags(root, files) if is_script else ctags.tags(root, files, language)
    mine = ours(result, languages)
    for side in ("callable", "type"):
        figures = compare(language, side, mine, theirs)
        out.setdefault(f"{language} {side}s", Figures()).add(figures)


def why_not(
    definitions: dict[str, Figures],
    calls: callers.CallCheck,
    maps: dict[str, dict[str, object]],
    times: dict[str, object],
    missing: list[str],
) -> list[str]:
    reasons = [f"missing: {m}" for m in missing]
    reasons += [
        f"{key}: precision {f.precision:.4f}, recall {f.recall:.4f}"
        for key, f in sorted(definitions.items())
        if min(f.precision, f.recall) < GOAL
    ]
    if calls.checked < callers.SAMPLE or calls.false:
        reasons.append(f"callers: {len(calls.false)} false of {calls.checked}")
    for name, row in maps.items():
        different = row["different"]
        assert isinstance(different, dict)
        bad = [k for k, v in different.items() if not v["why"]]
        reasons += [f"sample map of {name}: {key} differs" for key in bad]
    late = times.get("late", ["no tree to measure"])
    if late:
        reasons.append(f"late: {late}")
    if times and not times["same bytes"]:
        reasons.append("the same tree gave other bytes")
    return reasons


if __name__ == "__main__":
    sys.exit(main())
