"""The checks of a review: deterministic, each with a severity and a line. They see what changed,
not what it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from posixpath import basename

from retinue.formats.safe_text import one_line
from retinue.models.explorer.diffs import FileDiff
from retinue.models.explorer.file_kinds import is_doc, is_foreign, is_made, is_test
from retinue.models.explorer.languages import language_of, name_in
from retinue.models.explorer.report_text import plural

Finding = tuple[str, str, int, str]
"""Severity, path, line, and what it is."""
LATER = "TO" + "DO|FIX" + "ME|XXX|HACK"
MANIFESTS = ("package.json", "pyproject.toml", "Cargo.toml", "go.mod")
BIG_DIFF, BIG_FILE, BIG_GROWTH, DEEP, LONG = 400, 500, 15, 24, 200

GUESSED = "a possible secret"
"""Found by its name only, so examples in tests are not reported."""
SECRETS = (
    (r"-----BEGIN (?:RSA |EC |OPENSSH |DSA |PGP )?PRIVATE KEY", "a private key"),
    (r"\bAKIA[0-9A-Z]{16}\b", "an AWS access key"),
    (r"\bgh[pousr]_[A-Za-z0-9]{30,}\b", "a GitHub token"),
    (r"\bsk-(?:ant-)?[A-Za-z0-9_-]{24,}\b", "an API key"),
    (r"\bxox[abprs]-[A-Za-z0-9-]{10,}\b", "a Slack token"),
    (r"\bAIza[0-9A-Za-z_-]{35}\b", "a Google API key"),
    (
        r"(?i)\b(?:password|passwd|secret|api_?key|access_?token|auth_?token)\b['\"]?\s*[:=]\s*['\"][^'\"\s$<{]{8,}['\"]",
        GUESSED,
    ),
)
DANGERS = (
    (r"\beval\(|(?<![.\w])exec\(", ("py", "js", "ts", "rb", "php"), "high", "runs text as code"),
    (r"shell\s*=\s*True|\bos\.system\(", ("py",), "medium", "runs a command through a shell"),
    (
        r"verify\s*=\s*False|rejectUnauthorized\s*:\s*false|InsecureSkipVerify\s*:\s*true",
        (),
        "high",
        "does not verify TLS",
    ),
    (
        r"\bpickle\.loads?\(|\byaml\.load\((?!.*Safe)",
        ("py",),
        "medium",
        "reads data that can run code",
    ),
    (
        r"dangerouslySetInnerHTML|\.innerHTML\s*=",
        ("js", "ts"),
        "medium",
        "puts text into a page as markup",
    ),
    (r"\bunsafe\s*\{", ("rs",), "medium", "an unsafe block"),
    (r"\.unwrap\(\)", ("rs",), "low", "panics if there is no value"),
    (
        r"(?i)(?:execute|query)\w*\(\s*(?:f['\"]|['\"][^'\"]*['\"]\s*(?:%|\+|\.format))",
        (),
        "medium",
        "builds a query from text",
    ),
)
BROAD = {
    "py": r"^\s*except\s*:|^\s*except\s+(?:Base)?Exception\b",
    "js": r"\bcatch\s*(?:\([^)]*\))?\s*\{\s*\}",
    "ts": r"\bcatch\s*(?:\([^)]*\))?\s*\{\s*\}",
    "java": r"\bcatch\s*\(\s*(?:Exception|Throwable)\b",
    "cs": r"\bcatch\s*(?:\(\s*Exception\b|\{)",
    "go": r"^\s*_\s*=\s*err\b|,\s*_\s*:?=\s*\w+\(",
    "rb": r"^\s*rescue\s*(?:=>|$)|rescue\s+Exception",
}
PRINTS = {
    "py": r"^\s*print\(|\bbreakpoint\(\)|\bpdb\.set_trace\(",
    "js": r"\bconsole\.(?:log|debug)\(|\bdebugger\b",
    "ts": r"\bconsole\.(?:log|debug)\(|\bdebugger\b",
    "go": r"\bfmt\.Print(?:ln|f)?\(|\bspew\.Dump\(",
    "rs": r"\bdbg!\(|\bprintln!\(",
    "java": r"System\.out\.print|\.printStackTrace\(",
    "rb": r"^\s*(?:puts|p|pp)\s|binding\.pry",
}
SKIPS = (
    r"@pytest\.mark\.(?:skip|xfail)|@unittest\.skip|pytest\.skip\(|\b(?:it|test|describe)\.(?:skip|only)\(|\bxit\(|\bt\.Skip\(|"
    r"#\[ignore|@Disabled|@Ignore"
)
ASSERTS = r"\bassert\w*\b|\bexpect\(|\brequire\.\w+\(|\bt\.(?:Error|Fatal)"
BRANCHES = r"\b(?:if|elif|for|while|except|catch|case|match|when|switch)\b|&&|\|\|"


def risk(diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    later = re.compile(rf"\b(?:{LATER})\b")
    for diff in diffs:
        language = language_of(diff.path)
        key = language.key if language else ""
        for n, text in diff.added:
            if re.match(r"^(?:<{7}|>{7}) |^={7}$", text) and not is_doc(diff.path):
                yield "high", diff.path, n, "a leftover merge marker"
            for pattern, what in SECRETS:
                if re.search(pattern, text) and not (is_test(diff.path) and what == GUESSED):
                    yield "high", diff.path, n, f"{what} in the text"
                    break
            if not language:
                continue
            for pattern, keys, severity, what in DANGERS:
                if (
                    (not keys or key in keys)
                    and re.search(pattern, text)
                    and not is_test(diff.path)
                ):
                    yield severity, diff.path, n, f"{what}: `{_code(text)}`"
            if key in BROAD and re.search(BROAD[key], text):
                yield (
                    "medium",
                    diff.path,
                    n,
                    f"errors are caught broadly or ignored: `{_code(text)}`",
                )
            if (
                key in PRINTS
                and re.search(PRINTS[key], text)
                and not is_test(diff.path)
                and not _speaks(diff.path)
            ):
                yield "low", diff.path, n, f"debug output or a debugger stop: `{_code(text)}`"
            if later.search(text):
                yield "low", diff.path, n, f"work postponed: `{_code(text)}`"


def _speaks(path: str) -> bool:
    """Programs whose output is what they print."""
    return bool(
        re.search(
            r"(?:^|/)(?:cli|cmd|bin|scripts|examples|bench|tools)/|(?:^|/)(?:main|cli|__main__)\.\w+$",
            path,
        )
    )


def tests(diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    source = [
        d for d in diffs if language_of(d.path) and not is_test(d.path) and not is_foreign(d.path)
    ]
    changed = [d for d in diffs if is_test(d.path) and language_of(d.path)]
    for diff in changed:
        language = language_of(diff.path)
        cases = language.tests if language else ""
        gone = [(n, t) for n, t in diff.removed if cases and re.search(cases, t)]
        new = [(n, t) for n, t in diff.added if cases and re.search(cases, t)]
        if diff.is_gone:
            yield (
                "high",
                diff.path,
                0,
                f"the test file was deleted, with {plural(len(gone), 'test case')}",
            )
        elif len(gone) > len(new):
            lost = len(gone) - len(new)
            yield (
                "high",
                diff.path,
                gone[0][0],
                f"{plural(lost, 'test case')} fewer than before, e.g. `{_code(gone[0][1])}`",
            )
        elif not diff.is_gone:
            less = _count(ASSERTS, diff.removed) - _count(ASSERTS, diff.added)
            if less > 0:
                first = next(n for n, t in diff.removed if re.search(ASSERTS, t))
                yield "medium", diff.path, first, f"{plural(less, 'assertion')} fewer than before"
        for n, text in diff.added:
            if re.search(SKIPS, text):
                yield "medium", diff.path, n, f"a test is skipped or run alone: `{_code(text)}`"
    grown = [d for d in source if len(d.added) > 5 and not d.is_gone]
    if grown and not any(d.added for d in changed) and not any(_tests_itself(d) for d in source):
        worst = max(grown, key=lambda d: (len(d.added), d.path))
        told = f"{plural(len(source), 'source file')} changed and no test"
        yield "medium", worst.path, worst.added[0][0], told


def _tests_itself(diff: FileDiff) -> bool:
    return diff.path.endswith(".rs") and any("#[test]" in t for _, t in diff.added)


def _count(pattern: str, lines: Sequence[tuple[int, str]]) -> int:
    return sum(bool(re.search(pattern, t)) for _, t in lines)


def docs(diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    written = any(is_doc(d.path) for d in diffs)
    api: list[tuple[str, int]] = []
    for diff in diffs:
        language = language_of(diff.path)
        if language is None or is_test(diff.path) or is_foreign(diff.path):
            continue
        new = {name: (n, t) for n, t in diff.added if (name := _public(diff.path, t))}
        old = {name: (n, t) for n, t in diff.removed if (name := _public(diff.path, t))}
        for name, (n, text) in old.items():
            if name not in new:
                yield "medium", diff.path, n, f"`{name}` was public and was removed or hidden here"
                api.append((diff.path, n))
            elif _signature(new[name][1]) != _signature(text):
                yield (
                    "medium",
                    diff.path,
                    new[name][0],
                    f"the signature of `{name}` changed: `{_code(new[name][1])}`",
                )
                api.append((diff.path, new[name][0]))
        lines = dict(diff.added)
        for name, (n, _) in new.items():
            if name not in old:
                api.append((diff.path, n))
                if _undocumented(language.key, lines, n):
                    yield "low", diff.path, n, f"`{name}` is public and has no documentation"
    if api and not written:
        path, n = api[0]
        yield "low", path, n, f"{plural(len(api), 'public name')} changed and no document"


def _public(path: str, text: str) -> str:
    """The name that a line makes public, "" when there is none."""
    language = language_of(path)
    if language is None or (text[:1].isspace() and language.key != "java"):
        return ""
    name = name_in(language.types, text) or name_in(language.functions, text)
    key = language.key
    if not name or name.startswith("_"):
        return ""
    if key == "go":
        return name if name[:1].isupper() else ""
    if key == "rs":
        return name if text.startswith("pub ") else ""
    if key in ("ts", "js"):
        return name if text.startswith("export") else ""
    if key == "java":
        return name if "public" in text else ""
    return name if key in ("py", "rb") else ""


def _signature(text: str) -> str:
    return re.sub(r"\s+|#.*$|//.*$", "", text).rstrip("{:")


def _undocumented(key: str, lines: dict[int, str], n: int) -> bool:
    if key == "py":
        for m in range(n, n + 14):
            if m not in lines:
                return False
            if re.search(r":\s*(?:#.*)?$", lines[m]) and (
                lines[m].count("(") <= lines[m].count(")")
            ):
                return m + 1 in lines and not re.match(
                    r"""\s*[rRuUfF]?(?:\"\"\"|'''|"|')""", lines[m + 1]
                )
        return False
    above = lines.get(n - 1)
    return above is not None and not re.match(r"\s*(?://|\*|/\*|#\[|@|#)", above)


def size(diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    own = [d for d in diffs if not is_made(d.path) and not is_foreign(d.path)]
    code = [d for d in own if language_of(d.path) and not is_test(d.path)]
    total = sum(len(d.added) + len(d.removed) for d in code)
    if total > BIG_DIFF:
        worst = max(code, key=lambda d: (len(d.added) + len(d.removed), d.path))
        line = (worst.added or worst.removed)[0][0]
        yield (
            "medium",
            worst.path,
            line,
            f"{total} lines of source changed in one step; smaller steps are easier to review",
        )
    for diff in own:
        if diff.is_new and len(diff.added) > BIG_FILE and language_of(diff.path):
            yield "medium", diff.path, 1, f"a new file of {len(diff.added)} lines"
        if diff.is_binary and not diff.is_gone:
            yield "low", diff.path, 0, "a binary file was added or changed"
        if language_of(diff.path) is None or is_test(diff.path):
            continue
        more = _weight(diff.added) - _weight(diff.removed)
        if more > BIG_GROWTH:
            first = next(n for n, t in diff.added if re.search(BRANCHES, t))
            yield "medium", diff.path, first, f"{more} more branches than before"
        deep = [
            (n, t)
            for n, t in diff.added
            if t.strip() and _indent(t) >= DEEP and re.search(BRANCHES, t)
        ]
        if deep:
            yield (
                "low",
                diff.path,
                deep[0][0],
                f"nested {_indent(deep[0][1])} columns deep: `{_code(deep[0][1])}`",
            )
        long = [n for n, t in diff.added if len(t) > LONG]
        if long:
            yield (
                "low",
                diff.path,
                long[0],
                f"{plural(len(long), 'line')} of more than {LONG} characters",
            )
    for diff in own:
        if basename(diff.path) in MANIFESTS and diff.added and not diff.is_new:
            yield (
                "low",
                diff.path,
                diff.added[0][0],
                "a manifest changed: check dependencies and versions",
            )


def _weight(lines: Sequence[tuple[int, str]]) -> int:
    return sum(
        len(re.findall(BRANCHES, re.sub(r"(['\"]).*?\1|#.*$|//.*$", "", t))) for _, t in lines
    )


def _indent(text: str) -> int:
    return len(text.expandtabs(4)) - len(text.expandtabs(4).lstrip())


def _code(text: str) -> str:
    return one_line(re.sub(r"`", "'", text.strip()), 80)


CHECKS: dict[str, Callable[[Sequence[FileDiff]], Iterator[Finding]]] = {
    "risk": risk,
    "tests": tests,
    "docs": docs,
    "size": size,
}
