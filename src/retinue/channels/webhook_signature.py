"""Signatures of webhooks: made here, and checked by the receiver."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from retinue.errors import ConfigError, RetinueError

if TYPE_CHECKING:
    pass


Secret = str | bytes


# No full stop: it separates the parts of what is signed.
ID_PATTERN = re.compile(r"[!-\-/-~]{1,256}")
_SECONDS = re.compile(r"[0-9]{1,12}")


def sign(key: bytes, id: str, timestamp: str, body: bytes) -> str:
    """One signature as it is in the header; `key` is the decoded secret."""
    mac = hmac.digest(key, b"%s.%s.%s" % (id.encode(), timestamp.encode(), body), "sha256")
    return "v1," + base64.b64encode(mac).decode()


def verify_webhook(
    secret: Secret | Sequence[Secret],
    headers: Mapping[str, str],
    body: bytes,
    tolerance_seconds: float = 300,
) -> str:
    """For receivers: the key of a request that was signed with the secret (or one of them) and is
    not old.

    Anything else raises: answer it with 401. A key that you have taken before is a repetition:
    answer it with 409. `body` is the request's body as it came, not what a parser made of it."""
    keys = keys_of(secret)
    fields = {name.lower(): value for name, value in headers.items()}
    id, timestamp = fields.get("webhook-id", ""), fields.get("webhook-timestamp", "")
    if not ID_PATTERN.fullmatch(id) or not _SECONDS.fullmatch(timestamp):
        raise RetinueError("The request has no webhook-id, or no readable webhook-timestamp.")
    signatures = [sign(key, id, timestamp, body).encode() for key in keys]
    is_valid = False
    for signature in fields.get("webhook-signature", "").split():
        for one in signatures:
            is_valid |= hmac.compare_digest(signature.encode("utf-8", "replace"), one)
    if not is_valid:
        raise RetinueError("The request is not signed with this secret.")
    if abs(time.time() - int(timestamp)) > tolerance_seconds:
        raise RetinueError(f"The request was not signed within the last {tolerance_seconds:g} s.")
    return id


def keys_of(secret: Secret | Sequence[Secret]) -> list[bytes]:
    secrets = [secret] if isinstance(secret, (str, bytes)) else list(secret)
    if not secrets:
        raise ConfigError("A webhook needs a secret.")
    return [_key(one) for one in secrets]


def _key(secret: Secret) -> bytes:
    """The bytes of a secret. Never part of a message: not even a wrong one."""
    if isinstance(secret, str) and secret.startswith(("whsk_", "whpk_")):
        raise ConfigError(
            "A webhook's secret must be symmetric: it starts with whsec_, not with whsk_ or whpk_."
        )
    if isinstance(secret, str) and secret.startswith("whsec_"):
        try:
            secret = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(
                "The part after whsec_ in a webhook's secret must be base64."
            ) from None
    key = secret.encode() if isinstance(secret, str) else secret
    if not key:
        raise ConfigError("A webhook's secret must not be empty.")
    return key
