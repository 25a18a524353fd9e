"""A server's tool result as a `ToolResult`: texts joined, images separate, everything else
named."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from retinue.core.image_checks import facts_of_bytes
from retinue.core.messages import Image
from retinue.formats.fair_cut import clip
from retinue.formats.safe_text import clean, one_line
from retinue.tools.base import ToolResult
from retinue.tools.mcp_client.protocol import ServerLimits, encode

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MAX_BLOCKS = 2_000
NOTHING = "(The tool returned nothing.)"


def answer(result: Mapping[str, Any], limits: ServerLimits) -> ToolResult:
    """The server's text is data: it is passed on as the text of a tool result and never acted upon
    here."""
    texts: list[str] = []
    images: list[Image] = []
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    for block in blocks[:MAX_BLOCKS]:
        if isinstance(block, dict):
            _add(block, texts, images, limits)
        else:
            texts.append("[an invalid content block was omitted]")
    if len(blocks) > MAX_BLOCKS:
        texts.append(f"[{len(blocks) - MAX_BLOCKS} more content blocks were omitted]")
    data = result.get("structuredContent")
    if data is not None and not _says_it(texts, data):
        texts.append(encode(data).decode() if isinstance(data, dict | list) else str(data))
    text = clean("\n".join(texts)) or (NOTHING if not images else "")
    return ToolResult(
        text=clip(text, limits.result_chars),
        error=result.get("isError") is True,
        images=tuple(images),
    )


def _says_it(texts: list[str], data: Any) -> bool:
    """Servers repeat structured content as a text, for clients that do not know it: once is
    enough."""
    if isinstance(data, dict) and len(data) == 1:
        [value] = data.values()
        if (value if isinstance(value, str) else encode(value).decode()) == "\n".join(texts):
            return True
    for text in texts:
        if text.lstrip()[:1] in ("{", "["):
            try:
                if msgspec.json.decode(text.encode()) == data:
                    return True
            except (msgspec.DecodeError, RecursionError, UnicodeError):
                continue
    return False


def _add(
    block: Mapping[str, Any], texts: list[str], images: list[Image], limits: ServerLimits
) -> None:
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        texts.append(text if isinstance(text, str) else "[an invalid text was omitted]")
    elif kind == "image":
        _picture(block.get("mimeType"), block.get("data"), texts, images, limits)
    elif kind == "resource":
        _resource(block.get("resource"), texts, images, limits)
    elif kind == "resource_link":
        name, about = _word(block, "name") or _word(block, "title"), _word(block, "description")
        parts = [_word(block, "uri"), _word(block, "mimeType"), about]
        texts.append(f"[resource {name}: {', '.join(filter(None, parts))}]")
    else:
        named = one_line(kind, 40) if isinstance(kind, str) else "unknown"
        texts.append(
            f"[{named} content ({one_line(str(block.get('mimeType', '')), 60) or 'no type'}) is "
            "not shown]"
        )


def _resource(resource: Any, texts: list[str], images: list[Image], limits: ServerLimits) -> None:
    if not isinstance(resource, dict):
        texts.append("[an invalid resource was omitted]")
    elif isinstance(resource.get("text"), str):
        texts.append(f"[resource {_word(resource, 'uri')}]\n{resource['text']}")
    else:
        texts.append(f"[resource {_word(resource, 'uri')}]")
        _picture(resource.get("mimeType"), resource.get("blob"), texts, images, limits)


def _picture(
    media: Any, data: Any, texts: list[str], images: list[Image], limits: ServerLimits
) -> None:
    """Only what models can look at, and only if it is what it says: one bad picture costs the whole
    request."""
    named = one_line(media, 60) if isinstance(media, str) else "no type"
    if not isinstance(data, str) or media not in PICTURES:
        texts.append(f"[{named}, not shown]")
        return
    if len(data) > limits.image_bytes * 4 // 3 + 4 or len(images) >= limits.images:
        texts.append(f"[{named} of {len(data) * 3 // 4} bytes, too large to show]")
        return
    try:
        raw = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        texts.append(f"[{named}, damaged]")
        return
    looks = facts_of_bytes(raw)
    if looks.wrong:
        texts.append(f"[{named}, damaged]")
    else:
        images.append(Image(media_type=looks.media_type, data=base64.b64encode(raw).decode()))


def _word(block: Mapping[str, Any], key: str) -> str:
    value = block.get(key)
    return one_line(value, 500) if isinstance(value, str) else ""


def server_question(result: Mapping[str, Any]) -> str:
    """What a server wants to know before it continues, for a model that cannot answer it through
    the protocol."""
    requests = result.get("inputRequests")
    lines = []
    for request in list(requests.values())[:10] if isinstance(requests, dict) else []:
        params = request.get("params") if isinstance(request, dict) else None
        message = params.get("message") if isinstance(params, dict) else None
        schema = params.get("requestedSchema") if isinstance(params, dict) else None
        method = request.get("method") if isinstance(request, dict) else None
        words = one_line(message if isinstance(message, str) else str(method), 1_000)
        fields = schema.get("properties") if isinstance(schema, dict) else None
        named = (
            f" (fields: {', '.join(one_line(k, 60) for k in list(fields)[:20])})"
            if isinstance(fields, dict)
            else ""
        )
        lines.append(f"- {words}{named}")
    return "\n".join(lines) or "- (no question given)"
