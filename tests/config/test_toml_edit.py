"""Changing one value of a file: everything else in it stays as it is, or nothing is changed."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from retinue.config.layer_reader import read_layer
from retinue.config.toml_edit import changed, set_value
from retinue.errors import ConfigError

MINE = """\
# my settings
profiles = ["meepo"]   # one

[models]   # which
default = "openai:a"  # the good one
aliases = { fast = "openai:b" }

# limits below
[limits]
max_turns = 3

  # the end
"""


@pytest.mark.parametrize(
    ("key", "value", "was", "now"),
    [
        (
            "models.default",
            "openai:c",
            'default = "openai:a"  # the',
            'default = "openai:c"  # the',
        ),
        ("limits.max_turns", 7, "max_turns = 3\n", "max_turns = 7\n"),
        ("limits.depth", 2, "max_turns = 3\n", "max_turns = 3\ndepth = 2\n"),
        ("models.probe", False, '"openai:b" }\n', '"openai:b" }\nprobe = false\n'),
        (
            "profiles",
            ("phoenix",),
            'profiles = ["meepo"]   # one',
            'profiles = ["phoenix"]   # one',
        ),
        ("output.color", "never", "  # the end\n", '  # the end\n\n[output]\ncolor = "never"\n'),
        (
            "models.keys.openai",
            "WORK",
            "  # the end\n",
            '  # the end\n\n[models.keys]\nopenai = "WORK"\n',
        ),
        (
            "models.keys.openai",
            'a"\\\n\x07',
            "  # the end\n",
            '  # the end\n\n[models.keys]\nopenai = "a\\"\\\\\\n\\u0007"\n',
        ),
    ],
)
def test_one_value_changes_and_nothing_else(key: str, value: Any, was: str, now: str) -> None:
    assert MINE.count(was) == 1
    assert changed(MINE, tuple(key.split(".")), value) == MINE.replace(was, now)


@pytest.mark.parametrize(
    "text",
    [
        "[models]\naliases = { fast = 'openai:b' }\n",
        "models = { aliases = { fast = 'openai:b' } }\n",
        "[models]\n[models.aliases]\nfast = '''\nopenai:b'''\n",
        "[[models]]\n",
        "models = 3\n",
    ],
)
def test_what_cannot_be_written_without_touching_more_is_refused(text: str) -> None:
    key = ("models", "aliases", "fast")
    try:
        result = changed(text, key, "openai:c")
    except ConfigError as error:
        assert "by hand" in str(error)
    else:  # a value over several lines without a comment in it can be replaced
        assert "'''" in text and result == '[models]\n[models.aliases]\nfast = "openai:c"\n'


def test_a_list_over_several_lines_with_comments_is_left_to_its_writer() -> None:
    text = '[permissions]\ndeny = [\n  "read", # secret\n]\n'
    with pytest.raises(ConfigError, match="by hand"):
        changed(text, ("permissions", "deny"), ("x",))


def test_windows_lines_and_a_missing_last_newline_are_kept() -> None:
    assert (
        changed("[limits]\r\ndepth = 1\r\n", ("limits", "total"), 5)
        == "[limits]\r\ndepth = 1\r\ntotal = 5\r\n"
    )
    assert (
        changed("[limits]\ndepth = 1", ("limits", "total"), 5) == "[limits]\ndepth = 1\ntotal = 5\n"
    )
    assert changed("", ("limits", "total"), 5) == "[limits]\ntotal = 5\n"


def test_a_new_file_is_for_its_owner_alone_and_an_old_one_keeps_its_rights_and_its_mark(
    tmp_path: Path,
) -> None:
    file = tmp_path / "new" / "config.toml"
    assert set_value(str(file), ("limits", "depth"), 3, "user")
    assert not set_value(str(file), ("limits", "depth"), 3, "user")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    real = tmp_path / "real.toml"
    real.write_bytes(b"\xef\xbb\xbf# x\n")
    real.chmod(0o640)
    (tmp_path / "config.toml").symlink_to(real)
    set_value(str(tmp_path / "config.toml"), ("limits", "depth"), 3, "user")
    assert real.read_bytes() == b"\xef\xbb\xbf# x\n\n[limits]\ndepth = 3\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert (tmp_path / "config.toml").is_symlink()


def test_a_value_that_would_be_refused_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(MINE)
    with pytest.raises(ConfigError, match="can only be set in your user config"):
        set_value(str(file), ("store", "path"), "x", "project")
    with pytest.raises(ConfigError, match="Expected a whole number"):
        set_value(str(file), ("limits", "depth"), "deep", "user")
    assert file.read_text() == MINE
    assert os.listdir(tmp_path) == ["config.toml"]


def test_a_wrong_value_can_be_mended_but_a_file_that_is_no_toml_cannot(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[limits]\ndepth = 'deep' # wrong\n[nonsense]\n")
    set_value(str(file), ("limits", "depth"), 3, "user")
    assert file.read_text() == "[limits]\ndepth = 3 # wrong\n[nonsense]\n"
    file.write_text("[limits\n")
    with pytest.raises(ConfigError, match="Invalid TOML"):
        set_value(str(file), ("limits", "depth"), 3, "user")
    assert file.read_text() == "[limits\n"


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    file = str(tmp_path / "config.toml")
    names = [f"m{n}" for n in range(12)]
    threads = [
        threading.Thread(
            target=set_value, args=(file, ("models", "aliases", n), "openai:a", "user")
        )
        for n in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key[-1] for key in read_layer(file, "user").by_key} == set(names)
