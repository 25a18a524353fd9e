"""Where text from git may be shortened: half a secret is not recognized, so nothing is cut before
secrets are removed. Options and placeholders that cut, wrap or rewrite are refused, and names are
listed whole."""

from __future__ import annotations

import re

from retinue.errors import Refused

# Of `--format` for commits all that shows a field whole. Not `%<(`, `%>(` and `%w(`, which cut and
# wrap; not `%f`, `%al` and trailers, which show a part.
COMMIT = re.compile(
    r"%(?:%|n|x[0-9A-Fa-f]{2}|[-+ ]?(?:[HhTtPpDdSsbBNme]|[ac][nNeEdDrtiIsSh]|g[dDnNeEs]|G[?GSKFPT]"
    r"|C(?:red|green|blue|reset|\([\w,; #-]*\))|\((?:describe|decorate)(?::[^()%]*)?\)))"
)
# The same for branches and tags, whose fields have names: not `align`, and no modifier that takes a
# part.
REF = re.compile(
    r"%(?:%|[0-9A-Fa-f]{2}|\(\*?(?:refname(?::short|:lstrip=2)?|objectname(?::short(?:=\d+)?)?|(?:object)?type"
    r"|objectsize|HEAD|symref(?::short)?|worktreepath|(?:upstream|push)(?::(?:short|track|trackshort|remotename))?"
    r"|subject|body|contents(?::(?:subject|body|signature))?|(?:author|committer|tagger)(?:name|email)?|creator"
    r"|(?:author|committer|tagger|creator)date(?::[^()%]*)?|if(?::(?:not)?equals=[^()%]*)?|then|else|end"
    r"|color:[\w ]*)\))"
)
PRETTY = ("", "oneline", "short", "medium", "full", "fuller", "reference", "raw")
"""Not `email` and `mboxrd`: they fold long lines and encode words in pieces."""
WHOLE_NAMES = ("--stat-width=9000", "--stat-name-width=8000", "--stat-graph-width=40")
STAT = re.compile(r"--stat(?:=|$)|--compact-summary$")
# The line above a hunk, which git cuts after 80 bytes, or 40, comes after the numbers. The graph
# comes before them.
HUNK = re.compile(rb"(@@+)(?: [-+]\d+(?:,\d+)?)+ \1")
GRAPH = re.compile(rb"[|/\\_ ]*")
LINE = 4096


def whole(name: str, words: list[str]) -> list[str]:
    """The words behind the name of a command, so that it shows names whole. Raises `Refused` for a
    format with which it would show a part of something."""
    at = words.index("--") if "--" in words else len(words)
    options, paths = words[:at], words[at:]
    for word, after in zip(options, (*options[1:], ""), strict=False):
        option, sign, value = word.partition("=")
        if not sign:
            value = "" if option == "--pretty" else after
        if not _is_whole(name, option, value):
            raise Refused(
                "git",
                f"Invalid parameters: {word!r} of git {name} would cut or change text. Remove it.",
            )
    if not any(STAT.match(word) for word in options):
        return words
    return [
        *WHOLE_NAMES,
        *("--stat" if word.startswith("--stat=") else word for word in options),
        *paths,
    ]


def _is_whole(name: str, option: str, value: str) -> bool:
    if option == "--group":  # of shortlog: a trailer is cut at its colon
        return value in ("author", "committer")
    if option not in ("--format", "--pretty"):
        return True
    if name in ("branch", "tag"):
        return "%" not in REF.sub("", value)
    return value in PRETTY or ("%" in value and "%" not in COMMIT.sub("", value))


class Hunks:
    """The output of a diff, as it comes, without what git repeats of another line in the header of
    a hunk."""

    def __init__(self, words: list[str]) -> None:
        self._has_graph, self._held, self._is_inside = "--graph" in words, b"", False

    def feed(self, data: bytes) -> bytes:
        *lines, self._held = (self._held + data).split(b"\n")
        out = []
        for line in lines:
            out.append(line if self._is_inside else self._short(line))
            self._is_inside = False
        if len(self._held) > LINE:
            self._held, rest = b"", self._held if self._is_inside else self._short(self._held)
            self._is_inside = True
            return b"".join(line + b"\n" for line in out) + rest
        return b"".join(line + b"\n" for line in out)

    def close(self) -> bytes:
        rest, self._held = self._held, b""
        return rest if self._is_inside else self._short(rest)

    def _short(self, line: bytes) -> bytes:
        graph = GRAPH.match(line) if self._has_graph else None
        header = HUNK.match(line, graph.end() if graph is not None else 0)
        return line if header is None else line[: header.end()]
