"""The table of settings in docs/reference/configuration.md is made from their declarations."""

from __future__ import annotations

from pathlib import Path

from retinue.config.setting_list import every_setting, is_mapping
from retinue.config.toml_edit import literal

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "configuration.md"


def table() -> list[str]:
    rows = ["| key | default | means | flag, variable |", "|---|---|---|---|"]
    for s in every_setting():
        key = ".".join(s.key) + (".NAME" if is_mapping(s.type) else "")
        default = "" if s.default in (None, "", (), {}) else f"`{literal(s.default)}`"
        names = ", ".join(f"`{n}`" for n in (s.about.flag, s.variable) if n)
        mine = "; your own file only" if s.about.scope == "user" else ""
        rows.append(f"| `{key}` | {default} | {s.about.text}{mine} | {names} |")
    return rows


def test_the_page_lists_every_setting_as_it_is_declared() -> None:
    found = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    start = found.index(table()[0])
    assert found[start : start + len(table())] == table(), "\n".join(table())
