"""What `git` shows to a run that may not read some files: they are omitted from every diff, and
their content cannot be reached by another name."""

from __future__ import annotations

import os
import re

from retinue.core.call_rules import READING
from retinue.errors import Refused
from retinue.sandbox.private_paths import NOTHING
from retinue.sandbox.protected_paths import home_directories
from retinue.sandbox.secret_places import SECRETS
from retinue.tools.base import Context
from retinue.tools.file_rules import barred, hidden_patterns

# A file of a commit or of the index, where the commit is written plainly: anything else before the
# colon could be a commit after all.
FILE = re.compile(r"([^\s:{}]*):([0-3]:)?([^/:].*)", re.DOTALL)
FORMATS = (
    *(
        "-p",
        "-s",
        "-U",
        "--patch",
        "--no-patch",
        "--raw",
        "--summary",
        "--name",
        "--stat",
        "--numstat",
        "--shortstat",
    ),
    *("--dirstat", "--unified"),
)
# The options of `diff` that take the next word for their value.
VALUED = {
    "-S": "",
    "-G": "",
    "-U": "",
    "--unified": "=",
    "--diff-algorithm": "=",
    "--diff-filter": "=",
}
RANGE = re.compile(r"(\.\.\.?)")
# Without anything in it; what is new in a commit is shown against it.
EMPTY = (
    "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
)
PARENTS = re.compile(r"\^(?:!|@|-\d*)")


def guarded(words: list[str], context: Context) -> list[str]:
    """The words of a git command with which it shows nothing that the run may not read, or
    `Refused`."""
    top = _top(context.root)
    patterns = hidden_patterns(context, top)
    left_out = [f":(top,exclude,glob){_escaped(pattern)}" for pattern in patterns]
    left_out += [f":(top,exclude,icase,literal){path}" for path in _secrets(_sent(context, top))]
    if not left_out:
        return words
    name, *rest = words
    if "--" not in rest:  # git would guess which words are paths: `--` separates them from ours
        paths = [
            w
            for w in rest
            if not w.startswith("-") and os.path.lexists(os.path.join(context.root, w))
        ]
        rest = [*(w for w in rest if w not in paths), "--", *paths]
    at = rest.index("--")
    options = [w for w in rest[:at] if w.startswith("-")]
    plain = [w for w in rest[:at] if not w.startswith("-")]
    _refuse_content(name, options)
    if name == "blame":
        for word in (*plain, *rest[at + 1 :]):
            _ask(context, os.path.join(context.root, word), word, top)
        return words
    if name not in ("log", "show", "diff"):
        return words
    ending = ["--", *rest[at + 1 :], *left_out]
    if name == "diff":
        return [name, *_commits(rest[:at]), *ending]
    files = [match for word in plain if (match := FILE.fullmatch(word))]
    for match in files:
        base = context.root if match[3].startswith(("./", "../")) else top
        _ask(context, os.path.normpath(os.path.join(base, match[3])), match[0], top)
    if name == "show" and not (files and len(files) == len(plain)):
        # As `show` does it, but an object that is not a commit is passed over: it could be a file
        # without its name.
        is_told = any(w.startswith(FORMATS) for w in options)
        return [
            "log",
            "--no-walk=unsorted",
            *(() if is_told else ("--patch", "--cc")),
            *rest[:at],
            *ending,
        ]
    return [name, *(_of_commit(word) for word in rest[:at]), *ending]


def _of_commit(word: str) -> str:
    """The file of a commit: the part before the colon could be a directory without its name."""
    match = None if word.startswith("-") else FILE.fullmatch(word)
    return f"{match[1]}^{{commit}}:{match[3]}" if match and match[1] else word


def _commits(words: list[str]) -> list[str]:
    """The words of `diff`, each of which is a commit or an option: a directory or a file that is
    named by a hash, or by the part after a colon, would be shown without its path, and so without
    any rule on it."""
    commits: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word in VALUED:
            commits.append(f"{word}{VALUED[word]}{next(waiting, '')}")
        elif word.startswith("-"):
            commits.append(word)
        elif ":" in word:
            raise Refused(
                "git",
                f"{word!r} could name a file or a commit, and some files are not "
                "available to this run. Nothing was run. Put paths after --.",
            )
        else:
            commits.append("".join(_commit(part) for part in RANGE.split(word)))
    return commits


def _commit(part: str) -> str:
    if not part or part in EMPTY or RANGE.fullmatch(part):
        return part
    marked = PARENTS.search(part)
    if marked is not None and marked.end() == len(part):
        return f"{part[: marked.start()]}^{{commit}}{marked[0]}"
    return f"{part}^{{commit}}"


def _secrets(top: str) -> list[str]:
    """What is kept from models in the home directories that are, or lie in, a repository: it may be
    in its history."""
    secrets = []
    for home in home_directories():
        if home == top or home.startswith(top.rstrip("/") + "/"):
            secrets += [
                os.path.normpath(f"{os.path.relpath(home, top)}/{'/'.join(secret)}")
                for secret in SECRETS
            ]
    return secrets


def _sent(context: Context, path: str) -> str:
    """A path as it is in the directory that the run was sent to, also when it works in a copy of
    it."""
    return os.path.normpath(
        os.path.join(context.spec.request.cwd or context.root, os.path.relpath(path, context.root))
    )


def _refuse_content(name: str, options: list[str]) -> None:
    bad = {
        "log": [w for w in options if w.startswith("-L")],
        "show": [w for w in options if w.startswith("-L")],
        "status": [w for w in options if w.startswith("-v")],
        "branch": [w for w in options if w.startswith("--format")],
        "tag": [w for w in options if w.startswith("--format")],
    }.get(name)
    if bad:
        raise Refused(
            "git",
            f"option {bad[0]!r} could show files that a rule denies to this run. Nothing was run.",
        )


def _ask(context: Context, path: str, word: str, top: str) -> None:
    path = os.path.normpath(path)
    rule_on = barred(context, READING)
    if rule_on is not None and (rule := rule_on(path)):
        raise Refused("git", f"{word} cannot be shown: rule {rule!r}. Nothing was run.")
    home_path, home_top = _sent(context, path), _sent(context, top)
    if _secrets(home_top) and (why := NOTHING.why(home_path)):
        raise Refused("git", f"{word} cannot be shown: {why}. Nothing was run.")


def _escaped(pattern: str) -> str:
    """Our patterns have no character classes."""
    return pattern.replace("[", "\\[")


def _top(root: str) -> str:
    """The directory of the repository in which git will find itself."""
    at = root
    while not os.path.lexists(os.path.join(at, ".git")):
        above = os.path.dirname(at)
        if above == at:
            return root
        at = above
    return at
