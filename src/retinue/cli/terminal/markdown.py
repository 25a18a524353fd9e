"""Markdown on a terminal: headings, lists, tables and code as lines of rich. Code has no frame and
no numbers, so that it can be copied; links show where they lead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pygments.token import Comment, Keyword, Name
from rich import markdown as md
from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from retinue.formats.safe_text import several_lines
from retinue.view.ascii_marks import Charset
from retinue.view.graph_picture import picture

RULED = Box("    \n    \n ─  \n    \n    \n    \n    \n    \n")
"""A line below the headings of a table, and nothing else."""
WIDE, NARROW = 30, 28
_RULE = re.compile(r"\s{0,3}-{3,}\s*")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s[^\n]*")
_CODE_OR_DUNDER = re.compile(r"(`+[^`]*`+)|(?<=[/.])__(\w+?)__(?=[./:])")
Cells = Sequence[md.TableDataElement]
CODE = ANSISyntaxTheme({Keyword: Style(bold=True), Name.Builtin: Style(), Comment: Style(dim=True)})
STYLES = {
    "markdown.code": "bold",
    "markdown.item.bullet": "none",
    "markdown.item.number": "none",
    "markdown.link": "underline",
    "markdown.link_url": "none",
    "markdown.block_quote": "none",
    "markdown.hr": "dim",
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
    **{f"markdown.h{n}": "bold" for n in range(1, 7)},
}


class LeftHeading(md.Heading):
    LEVEL_ALIGN: ClassVar[dict[str, Any]] = {}


class BareCode(md.CodeBlock):
    """Indented by four, with bold keywords and dim comments. A graph is drawn."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        if self.lexer_name == "mermaid":
            drawing = picture(code, options.max_width - 4, is_unicode=not Charset.is_ascii)
            if drawing is not None:
                yield Padding(Text(drawing, no_wrap=True), (0, 0, 0, 4))
                return
        syntax = Syntax(code, self.lexer_name, theme=CODE, background_color="default")
        text = syntax.highlight(code)
        text.rstrip()
        text.no_wrap, text.overflow = False, "fold"
        yield Padding(text, (0, 0, 0, 4))


class RuledTable(md.TableElement):
    """Only the last column is wrapped. Where it would be too narrow for its words, or take more
    lines, it goes below its row, so that no name or place is cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        beside, below = self._layouts(options)
        if beside is None or below is None:
            yield from beside or below or ()
            return
        n_beside, n_below = (
            sum(len(console.render_lines(part, options, pad=False)) for part in parts)
            for parts in (beside, below)
        )
        yield from below if n_below < n_beside else beside

    def _layouts(
        self, options: ConsoleOptions
    ) -> tuple[list[RenderableType] | None, list[RenderableType] | None]:
        """With the last column beside the others, and below them; None for what is out of the
        question."""
        head = self.header.row.cells if self.header is not None and self.header.row else []
        rows = [row.cells for row in self.body.rows] if self.body is not None else []
        rows = [row for row in rows if len(row) == len(head)]
        least = [_least([row[n] for row in rows], cell) for n, cell in enumerate(head)]
        room = options.max_width - 1 - sum(width + 3 for width in least[:-1])
        longest = [_longest_word(row[n] for row in rows) for n in range(len(head))]
        last = max([*longest[-1:], NARROW])
        below = None
        if len(head) > 1 and last <= options.max_width - 5:
            below = list(self._stacked(head, rows, least, options.max_width))
        if below is not None and room < last:
            return None, below
        fixed = [n + 1 < len(head) and width < WIDE for n, width in enumerate(least)]
        widths = {n: least[n] for n, is_fixed in enumerate(fixed) if is_fixed}
        rest = options.max_width - 1 - 3 * len(head) - sum(widths.values())
        column_widths = {
            n: (longest[n], max([*(row[n].content.cell_len for row in rows), longest[n]]))
            for n in range(len(head))
            if n not in widths
        }
        widths |= _shared(column_widths, rest)
        table = Table(box=RULED, show_edge=False, border_style="markdown.table.border")
        for n, cell in enumerate(head):
            heading = cell.content.copy()
            heading.stylize("markdown.table.header")
            table.add_column(heading, justify=cell.justify, overflow="fold", width=widths.get(n))
        for row in rows:
            table.add_row(*(cell.content for cell in row))
        return [Padding(table, (0, 0, 0, 1))], below

    def _stacked(
        self, head: Cells, rows: Sequence[Cells], least: Sequence[int], width: int
    ) -> Iterator[RenderableType]:
        table = Table(box=None, show_edge=False, padding=(0, 1))
        headings = [max(least[n], cell.content.cell_len) for n, cell in enumerate(head[:-1])]
        if sum(headings) + 3 * len(headings) < width:
            least = headings
        for n, cell in enumerate(head[:-1]):
            heading = cell.content.copy()
            heading.stylize("markdown.table.header")
            table.add_column(heading, justify=cell.justify, width=least[n])
        yield Padding(table, (0, 0, 0, 1))
        below = head[-1].content.copy()
        below.stylize("markdown.table.header")
        yield Padding(below, (0, 0, 0, 4))
        for row in rows:
            line = Table(box=None, show_edge=False, show_header=False, padding=(0, 1))
            for n in range(len(row) - 1):
                line.add_column(justify=head[n].justify, width=least[n])
            line.add_row(*(cell.content for cell in row[:-1]))
            yield Padding(line, (0, 0, 0, 1))
            yield Padding(row[-1].content, (0, 0, 0, 4))


def _least(cells: Cells, head: md.TableDataElement) -> int:
    """The width at which no word of a column is cut and short cells stay on one line."""
    words = [cell_len(word) for word in head.content.plain.split()]
    return min(WIDE, max([*(cell.content.cell_len for cell in cells), *words, 1]))


def _shared(widths: Mapping[int, tuple[int, int]], room: int) -> dict[int, int]:
    """Widths of columns that do not all fit: each gets the width of its longest word, and then a
    part of the rest. Empty where all of it fits, or not even the longest words do."""
    least, most = (sum(pair[n] for pair in widths.values()) for n in (0, 1))
    if most <= room or least > room:
        return {}
    return {n: a + (b - a) * (room - least) // (most - least) for n, (a, b) in widths.items()}


def _longest_word(cells: Iterable[md.TableDataElement]) -> int:
    words = (word for cell in cells for word in cell.content.plain.split())
    return max(map(cell_len, words), default=1)


class TerminalMarkdown(md.Markdown):
    elements: ClassVar[dict[str, type[md.MarkdownElement]]] = {
        **md.Markdown.elements,
        "heading_open": LeftHeading,
        "fence": BareCode,
        "code_block": BareCode,
        "table_open": RuledTable,
    }


def rendered(blocks: Iterable[str], width: int) -> list[Text]:
    """Blocks of Markdown as lines of at most `width` cells, an empty line between two of them, but
    none below a heading or a rule."""
    console = Console(width=max(20, width), theme=Theme(STYLES), legacy_windows=False)
    lines: list[Text] = []
    is_below = True
    for block in blocks:
        if not is_below:
            lines.append(Text())
        is_below = is_heading(block) or _RULE.fullmatch(block) is not None
        lines += _lines(console, _with_paths(several_lines(block)))
    return lines


def is_heading(block: str) -> bool:
    """Whether a block ends with a heading."""
    return _HEADING.fullmatch(block.rpartition("\n")[2]) is not None


def _with_paths(block: str) -> str:
    """`pkg/__init__.py` is a path, and nothing in it is bold. What is code stays as it is."""
    if block.lstrip().startswith(("```", "~~~")) or block.startswith(("    ", "\t")):
        return block
    return _CODE_OR_DUNDER.sub(lambda m: m[1] or f"\\_\\_{m[2]}\\_\\_", block)


def _lines(console: Console, block: str) -> list[Text]:
    page = TerminalMarkdown(block, hyperlinks=False)
    lines = []
    for segments in console.render_lines(page, pad=False):
        line = Text.assemble(*((part.text, part.style or "") for part in segments))
        line.rstrip()
        lines.append(line)
    while lines and not lines[0].plain.strip():
        del lines[0]
    while lines and not lines[-1].plain.strip():
        del lines[-1]
    return lines
