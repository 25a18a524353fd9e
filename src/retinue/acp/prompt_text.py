"""Turns an editor's prompt into the text of a task: text, mentioned files and quoted files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import RequestError
from acp.schema import (
    EmbeddedResourceContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from retinue.formats.safe_text import clean


def prompt_text(blocks: Sequence[Any]) -> str:
    """The text of a prompt. Raises `RequestError` for what no agent can read."""
    words, quotes = list[str](), list[str]()
    for block in blocks:
        match block:
            case TextContentBlock(text=text):
                words.append(text)
            case ResourceContentBlock(uri=uri):
                words.append(f"@{file_or_uri(uri)}")
            case EmbeddedResourceContentBlock(resource=TextResourceContents(uri=uri, text=text)):
                words.append(f"@{file_or_uri(uri)}")
                quotes.append(f"{file_or_uri(uri)}:\n```\n{text.rstrip()}\n```")
            case _:
                kind = getattr(block, "type", "block")
                raise invalid(
                    f"Agents here read text, not a {kind}. Nothing was sent. Mention a file "
                    "instead."
                )
    text = clean("\n\n".join(["".join(words).strip(), *quotes])).strip()
    if not text:
        raise invalid("The prompt is empty.")
    return text


def file_or_uri(uri: str) -> str:
    """The path of a file, or the address of something else."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    lines = f":{parts.fragment}" if parts.fragment else ""
    return unquote(parts.path) + lines


def invalid(text: str) -> RequestError:
    """What a client has asked for cannot be done, and why."""
    return RequestError(-32602, text)
