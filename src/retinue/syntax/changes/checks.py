"""The checks of a review: each has a fixed severity and says what it looks for. They see text and
syntax, not what the code does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from retinue.syntax.changes import definition_checks as of_definitions
from retinue.syntax.changes import text_checks as of_text
from retinue.syntax.changes.review_facts import ReviewFinding
from retinue.syntax.changes.review_input import ReviewInput

Check = Callable[[ReviewInput], Iterator[ReviewFinding]]
NOT_IN_CHANGELOG = "no public signature changed or removed that the changelog does not name"
"""Said only where there is a changelog."""
CHECKS: tuple[tuple[str, Check], ...] = (
    (
        "no removed definition that is still called by a name defined nowhere else",
        of_definitions.removed_and_called,
    ),
    ("no mark of a merge conflict", of_text.conflict_marks),
    ("no text that looks like a key", of_text.keys),
    ("no new syntax error", of_text.syntax_errors),
    ("no assignment left to what is a property without a setter now", of_definitions.properties),
    ("no public signature changed with callers outside of the change", of_definitions.signatures),
    ("no `except` without a class", of_text.bare_excepts),
    ("no call of a debugger", of_text.debuggers),
    ("no `assert` in source that guards a value that can be `None`", of_text.none_asserts),
    ("no default of a public attribute changed", of_definitions.defaults),
    (
        NOT_IN_CHANGELOG,
        of_definitions.changelog,
    ),
    ("no new `type: ignore`, `noqa` or the like", of_text.waivers),
    ("no postponed work noted in a comment", of_text.postponed),
)
"""What is said when a check finds nothing, and the check."""
