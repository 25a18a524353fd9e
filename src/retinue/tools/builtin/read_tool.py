"""`read`: shows a file as numbered lines, or as an image."""

from __future__ import annotations

import base64
from typing import Any

from retinue.core.messages import Image
from retinue.core.redaction import Redactor
from retinue.errors import NotFound, Refused
from retinue.tools.base import ToolResult
from retinue.tools.builtin.builtin_tool import ToolArguments
from retinue.tools.builtin.file_tool import (
    MAX_ANSWER,
    MAX_LINE,
    FileCall,
    FileTool,
    failed,
    printable,
)
from retinue.tools.builtin.list_find_tools import Positive
from retinue.tools.builtin.text_file import (
    Text,
    displayable,
    image_type,
    is_binary,
    sha256,
    split_lines,
)

MAX_IMAGE = 5_000_000


class ReadArgs(ToolArguments, frozen=True, kw_only=True):
    path: str
    offset: Positive = 1
    limit: Positive = 2000


class ReadTool(FileTool[ReadArgs]):
    """Lines of a text file, numbered; a picture as a picture."""

    name = "read"
    description = (
        "Read a file. `path` is relative to the root. Text comes as numbered lines, "
        "starting at line `offset`, at most `limit`. The first line of the answer has "
        "the number of lines and the sha256 that edit and write take as "
        "`expected_sha256`. PNG, JPEG, GIF and WebP files are shown as images. For "
        "directories, use list."
    )
    Args = ReadArgs
    restart = "pure"
    risk = "read"

    def summary(self, args: dict[str, Any]) -> str:
        path, offset, limit = args.get("path"), args.get("offset"), args.get("limit")
        first = offset if isinstance(offset, int) else 1
        last = first + limit - 1 if isinstance(limit, int) else ""
        span = f":{first}-{last}" if isinstance(offset, int) or isinstance(limit, int) else ""
        return printable(f"read {path}{span}"[:200])

    def work(self, work: FileCall, args: ReadArgs) -> ToolResult:
        try:
            with work.reach.reading(args.path) as (root, rest):
                data = root.read_file(rest)
        except Refused as error:
            return failed(
                printable(f"{error}. Use list")
                if error.limit == "directory"
                else printable(str(error))
            )
        except NotFound as error:
            return failed(printable(f"{error}{_hint(args.path)}"))
        kind = image_type(data)
        if kind:
            return _picture(args.path, kind, data)
        if is_binary(data):
            return failed(
                printable(
                    f"{args.path}: this is a binary file of {len(data)} bytes, which "
                    "cannot be shown"
                )
            )
        return _numbered(args, data, work.redactor)


def _hint(path: str) -> str:
    if path.startswith("~"):
        return ". ~ is not expanded: give a path relative to the root"
    return ". Use list to see a directory, or find to look for a name"


def _picture(path: str, kind: str, data: bytes) -> ToolResult:
    if len(data) > MAX_IMAGE:
        return failed(
            printable(f"{path}: the image has {len(data)} bytes; the limit is {MAX_IMAGE}")
        )
    image = Image(media_type=kind, data=base64.b64encode(data).decode("ascii"))
    return ToolResult(
        text=printable(f"[{path}: {kind}, {len(data)} bytes, sha256 {sha256(data)}]"),
        images=(image,),
    )


def _numbered(args: ReadArgs, data: bytes, redactor: Redactor) -> ToolResult:
    source = Text.of(data)
    text = displayable(source.text)
    lines = split_lines(redactor.clean(text))
    if lines and args.offset > len(lines):
        return failed(
            printable(
                f"{args.path}: it has only {len(lines)} lines, so there is no line {args.offset}"
            )
        )
    out: list[str] = []
    size = n_cut = 0
    for number, raw in enumerate(
        lines[args.offset - 1 : args.offset - 1 + args.limit], args.offset
    ):
        line = raw.removesuffix("\r")
        if len(line) > MAX_LINE:
            line = f"{line[:MAX_LINE]}[truncated: {len(line) - MAX_LINE} more characters]"
            n_cut += 1
        size += len(line) + 8
        if size > MAX_ANSWER:
            break
        out.append(f"{number}\t{line}")
    last = args.offset + len(out) - 1
    whole = len(out) == len(lines)
    facts = [
        f"{len(lines)} lines" if whole else f"lines {args.offset}-{last} of {len(lines)}",
        f"{len(data)} bytes",
    ]
    if source.encoding != "utf-8" or source.bom:
        facts.append(f"{source.encoding} with a byte order mark")
    if text != source.text:
        facts.append("some bytes are not text and are shown as \ufffd")
    if source.is_crlf:
        facts.append("lines end with CR LF")
    if lines and not text.endswith("\n"):
        facts.append("no line feed at the end")
    if n_cut:
        facts.append(f"{n_cut} long lines are truncated")
    header = printable(f"[{args.path}: {', '.join(facts)}, sha256 {sha256(data)}]")
    rest = [] if last >= len(lines) else [f"[continue with offset {last + 1}]"]
    return ToolResult(text="\n".join([header, *out, *rest]))
