"""The table of settings on the page about the configuration, from their declarations."""

from __future__ import annotations

from pathlib import Path

from docs.makers.markdown import replaced
from retinue.config.setting_list import every_setting, is_mapping
from retinue.config.toml_edit import literal

PAGE = Path(__file__).resolve().parents[1] / "reference" / "configuration.md"


def page() -> str:
    return replaced(PAGE, "settings", table())


def table() -> list[str]:
    rows = ["| key | default | meaning | flag, variable |", "|---|---|---|---|"]
    for setting in every_setting():
        key = ".".join(setting.key) + (".NAME" if is_mapping(setting.type) else "")
        is_empty = setting.default in (None, "", (), {})
        default = "" if is_empty else f"`{literal(setting.default)}`"
        names = ", ".join(f"`{name}`" for name in (setting.about.flag, *setting.variables) if name)
        scope = "; user config only" if setting.about.scope == "user" else ""
        rows.append(f"| `{key}` | {default} | {setting.about.text}{scope} | {names} |")
    return rows
