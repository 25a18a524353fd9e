"""`symbols`: answers questions about the syntax of a source tree. The explorer asks it for its
reports; an agent can ask where a name is defined and who calls it."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from retinue.core.call_rules import READING
from retinue.errors import Refused
from retinue.formats.suggestion import did_you_mean
from retinue.sandbox.directory_walk import Patience
from retinue.sandbox.paths import Root, real_path
from retinue.sandbox.protected_paths import KERNEL
from retinue.syntax.changes.change_set import ChangeSet, CommitHistory
from retinue.tools.base import ToolResult
from retinue.tools.builtin import git_answers
from retinue.tools.builtin.builtin_tool import ToolArguments
from retinue.tools.builtin.file_tool import FileCall, FileTool, beneath, failed, printable
from retinue.tools.builtin.kept_answers import KeptAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from retinue.syntax.tree_files import OpenTree

MOST_TEXT = 2_000
WALK_SECONDS = 30.0


class SymbolsArgs(ToolArguments, frozen=True, kw_only=True):
    text: str = ""
    path: str = "."
    question: str = "find"
    area: str = ""
    full: bool = False


class SymbolsTool(FileTool[SymbolsArgs]):
    """Files are parsed in processes of their own; what was found is kept by content in `cache`. A
    file that this run may not read is not there."""

    name = "symbols"
    description = (
        "Look up a name in the syntax of a source tree: where it is defined, which functions call "
        "it, who imports or extends it. `text` is an identifier (QuerySet, Owner.name) or a "
        "question in words, which ranks definitions. Returns JSON with path and line of each "
        "place. Python, JavaScript, TypeScript, Go, Rust, C, C++, Java, Ruby, PHP, C#, Kotlin, "
        "Bash; other files are only searched for the word. `path` is the directory to look in; "
        "places are relative to it."
    )
    Args = SymbolsArgs
    restart = "pure"
    risk = "read"
    acts = (*READING, "symbols")

    def __init__(self, cache: Path | None = None) -> None:
        super().__init__()
        self._cache = cache
        self._kept = KeptAnswers()

    def summary(self, args: dict[str, Any]) -> str:
        subject = args.get("text") or args.get("area") or args.get("question") or "find"
        where = args.get("path", ".")
        return printable(f"symbols {subject}{'' if where == '.' else f' in {where}'}"[:200])

    async def perform(self, work: FileCall, args: SymbolsArgs) -> ToolResult:
        """What git has to say is asked first; all else is done in a thread."""
        git_facts = None
        if args.question in git_answers.QUESTIONS:
            with opened(work, args.path) as files:
                place = git_answers.GitPlace(
                    files.key, work.reach.read, files.hides_inside, git_answers.reader(files)
                )
                git_facts = await git_answers.ask_git(args.question, args.text, place)
        return await asyncio.to_thread(self.search, work, args, git_facts)

    def search(
        self, work: FileCall, args: SymbolsArgs, git_facts: CommitHistory | ChangeSet | None
    ) -> ToolResult:
        from retinue.syntax.symbol_search import find_symbols
        from retinue.syntax.syntax_engine import SyntaxEngine
        from retinue.syntax.tree_questions import QUESTIONS, TreeQuestion

        if len(args.text) > MOST_TEXT:
            return failed(f"Invalid parameters: `text` has more than {MOST_TEXT} characters")
        questions = ["find", *QUESTIONS, *git_answers.QUESTIONS]
        if args.question not in questions:
            hint = did_you_mean(args.question, questions)
            return failed(f"Invalid parameters: unknown question {args.question!r}.{hint}")
        engine = SyntaxEngine(self._cache)
        try:
            with opened(work, args.path) as files:
                if isinstance(git_facts, CommitHistory):
                    answer: object = git_answers.history_answer(engine, files, git_facts, work.stop)
                elif git_facts is not None:
                    answer = git_answers.review_answer(engine, files, git_facts, work.stop)
                elif args.question == "find":
                    answer = find_symbols(engine, files, args.text, args.full, work.stop)
                else:
                    folder = os.path.basename(files.key)
                    tree_question = TreeQuestion(args.text, args.path, args.area, args.full, folder)
                    answer = self._kept.answer(
                        engine, files, args.question, tree_question, work.stop
                    )
        finally:
            engine.close()
        return ToolResult(text=work.redactor.clean(msgspec.json.encode(answer).decode()))


@contextmanager
def opened(work: FileCall, path: str) -> Iterator[OpenTree]:
    """The files below a directory, as far as this run may read them."""
    from retinue.syntax.tree_files import OpenTree

    with work.reach.reading(path) as (root, rest):
        fd = root.open_dir(rest)
        try:
            yield OpenTree(
                key=real_path(fd),
                fd=fd,
                top=root.fd,
                base=beneath(root, fd),
                hides=_hidden(work, root),
                patience=Patience(seconds=WALK_SECONDS, stop=work.stop),
                skip=KERNEL if real_path(fd) == "/" else (),
                bars=lambda info: _is_private(root, info),
            )
        finally:
            os.close(fd)


def _hidden(work: FileCall, root: Root) -> Callable[[str], bool]:
    """What is private, and what a rule of the run forbids to readers."""
    is_listed_out, forbids = root.hides(), work.reach.forbids
    if forbids is None:
        return is_listed_out
    top = root.path.rstrip("/")
    return lambda path: is_listed_out(path) or bool(forbids(f"{top}/{path}"))


def _is_private(root: Root, info: os.stat_result) -> bool:
    try:
        root.refuse_link(info, "")
    except Refused:
        return True
    return False
