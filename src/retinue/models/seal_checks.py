"""Recognizes a provider's refusal of a signature or an image, and checks whether a signature is
readable."""

from __future__ import annotations

import re

import msgspec

SEALS = re.compile(
    r"signature|encrypted[_ ]content|(?:redacted_)?thinking`? blocks?|must start with a "
    r"thinking|expected `?thinking"
    r"|reasoning_(?:content|details)|property '?reasoning|'rs_|of type 'reasoning'",
    re.IGNORECASE,
)
"""What providers say of a seal that is missing, broken, or another's."""
PICTURES = re.compile(
    r"\bimages?\b|image_|_image|inline_?data|\bpictures?\b|\bvision\b|\bmime.?type|multi-?modal|\bmodalit(?:y|ies)\b"
    r"|content\W{0,3} (?:must|should) be (?:a |of type )?string|\bonly (?:supports? "
    r")?text\b|\bmedia\b",
    re.IGNORECASE,
)
"""What they say of a picture that they do not take, and of a message that is not text alone."""
MANY = re.compile(
    r"too (?:many|much)|at most \d+|(?:maximum|max|limit)\b.{0,40}\d|exceed",
    re.IGNORECASE | re.DOTALL,
)
"""That it is their number or their size together."""
ITEM = re.compile(r"\bitem\b.*'?rs_", re.IGNORECASE | re.DOTALL)
"""A thought that the provider looks for among what it has stored: it is not the model that is not
found."""


def is_whole(seal: str, dialect: str) -> bool:
    """Whether what was kept of a reply can be read: one that is damaged is missed by no one but its
    model."""
    try:
        content = msgspec.json.decode(seal.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return False
    items = content if isinstance(content, list) else [content]
    words = [
        item.get(name, "") for item in items if isinstance(item, dict) for name in ("type", "id")
    ]
    # Gemini's hold the lengths and places of what the message has already.
    is_known = isinstance(content, list | dict) and (
        dialect == "gemini" or all(isinstance(i, dict) for i in items)
    )
    return is_known and all(isinstance(word, str) for word in words)
