"""How commands show their help: options in groups, examples before them, notes after them, and
spellings that are accepted without being shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

OTHER = "Other"


class Flag(click.Option):
    """An option. `group` is its heading in help; the spellings in `compat` are accepted and not
    shown, because help names one spelling for one meaning."""

    def __init__(
        self,
        names: Sequence[str] | None = None,
        *,
        group: str = "",
        compat: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        super().__init__([*(names or ()), *compat], **settings)
        self.group, self._compat = group, frozenset(compat)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        every = self.opts
        self.opts = [name for name in every if name not in self._compat]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = every


class GroupedCommand(click.Command):
    """A command with its options in groups, `examples` before and `notes` after them."""

    def __init__(self, *names: Any, examples: str = "", notes: str = "", **settings: Any) -> None:
        super().__init__(*names, **settings)
        self._examples, self._notes = examples, notes

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        write_examples(formatter, self._examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                title = getattr(parameter, "group", "") or OTHER
                groups.setdefault(title, []).append(record)
        for title, rows in sorted(groups.items(), key=lambda group: group[0] == OTHER):
            with formatter.section(title):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self._notes:
            formatter.write(f"\n{self._notes}\n")


def write_examples(formatter: click.HelpFormatter, examples: str) -> None:
    """Examples as they are: lines of a shell are not wrapped."""
    if examples:
        lines = "".join(f"  {line}\n" for line in examples.splitlines())
        formatter.write(f"\nExamples:\n{lines}")
