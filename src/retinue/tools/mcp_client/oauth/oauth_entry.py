"""The key `oauth` of a server's entry, as several programs write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from retinue.tools.mcp_client.config_variables import Wrong
from retinue.tools.mcp_client.entry_keys import type_name
from retinue.tools.mcp_client.server_config import OAuthSettings

TEXTS = {
    "clientId": "client_id",
    "client_id": "client_id",
    "clientSecret": "client_secret",
    "client_secret": "client_secret",
    "scope": "scope",
    "scopes": "scope",
    "issuer": "issuer",
}
PORTS = ("callbackPort", "callback_port")


def oauth_settings(
    table: Mapping[str, Any], expand: Callable[[str, str], str]
) -> tuple[OAuthSettings, list[str]]:
    """The settings, and the keys that are unknown."""
    texts: dict[str, str] = {}
    port, is_off, unknown = 0, False, list[str]()
    for key, value in table.items():
        field = f"oauth.{key}"
        if key in TEXTS:
            words = value if key == "scopes" and isinstance(value, list) else [value]
            if not all(isinstance(word, str) for word in words):
                raise Wrong(field, f"it must be a text, not {type_name(value)}")
            texts[TEXTS[key]] = expand(" ".join(words), field)
        elif key in PORTS:
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 65_536:
                raise Wrong(field, "it must be a number from 0 to 65535")
            port = value
        elif key == "enabled":
            is_off = value is False
        else:
            unknown.append(key)
    return OAuthSettings(port=port, is_off=is_off, **texts), unknown
