"""Splits Markdown into blocks while it is being written: complete blocks can be rendered, the rest
is still growing."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^ {0,12}(`{3,}|~{3,})")
_HEADING = re.compile(r"^ {0,3}#{1,6}(\s|$)")
_ITEM = re.compile(r"^\s*([-*+]|\d{1,9}[.)])\s|^\s{2,}\S")


class MarkdownBlocks:
    """Feed text, take whole blocks. `rest` is the block that is being written."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line = ""
        self._fence = ""

    @property
    def rest(self) -> str:
        return "\n".join([*self._lines, self._line]) if self._lines else self._line

    def feed(self, text: str) -> list[str]:
        """The blocks that are complete with this text."""
        *whole, self._line = (self._line + text).split("\n")
        return [block for line in whole if (block := self._add(line.rstrip("\r")))]

    def close(self) -> list[str]:
        """What is left when nothing more comes."""
        block = self.rest.strip("\n")
        self._lines, self._line, self._fence = [], "", ""
        return [block] if block.strip() else []

    def _add(self, line: str) -> str:
        """The block that ends with this line, if one does."""
        if self._fence:
            self._lines.append(line)
            mark = _FENCE.match(line)
            if mark and mark[1].startswith(self._fence) and not line.strip(" `~"):
                self._fence = ""
                return "" if self._is_list else self._take()
            return ""
        if not line.strip():
            if self._lines and not self._is_list:
                return self._take()
            if self._lines:
                self._lines.append("")
            return ""
        block = self._before(line)
        self._lines.append(line)
        if mark := _FENCE.match(line):
            self._fence = mark[1]
        elif _HEADING.match(line) and len(self._lines) == 1:
            block = f"{block}\n\n{self._take()}" if block else self._take()
        return block

    def _before(self, line: str) -> str:
        """The block before a line that begins something else."""
        if not self._lines:
            return ""
        is_after_gap = self._is_list and not self._lines[-1]
        if (is_after_gap and not _ITEM.match(line)) or _HEADING.match(line):
            return self._take()
        if _FENCE.match(line) and not self._is_list:
            return self._take()
        return ""

    @property
    def _is_list(self) -> bool:
        return bool(self._lines) and _ITEM.match(self._lines[0]) is not None

    def _take(self) -> str:
        block = "\n".join(self._lines).strip("\n")
        self._lines = []
        return block
