"""What a project says of itself: each statement with the line where it stands."""

from __future__ import annotations

import json

import pytest

from retinue.models.explorer.report_text import plural
from retinue.syntax.project import readme
from retinue.syntax.project.json_positions import key_lines
from retinue.syntax.project.manifests import is_manifest, read_manifest, read_project
from retinue.syntax.project.places import first_sentence, is_licence

PYPROJECT = """\
[build-system]
requires = ["flit_core"]
build-backend = "flit_core.buildapi"

[project]
name = "Ledgerly"
version = "1.2"
description = "Double-entry bookkeeping for small clubs."
requires-python = ">=3.11"
dependencies = [
    "click>=8",
    "rich ; python_version < '4'",
]

[project.scripts]
ledgerly = "ledgerly.cli.main:run"

[tool.pytest.ini_options]
testpaths = ["tests"]
"""


def test_a_pyproject_is_read_with_its_lines() -> None:
    manifest = read_manifest("pyproject.toml", PYPROJECT)
    assert manifest is not None
    lines = PYPROJECT.split("\n")
    assert (manifest.name, manifest.version) == ("Ledgerly", "1.2")
    assert manifest.description is not None
    assert "description" in lines[manifest.description.place.line - 1]
    assert [(c.text, c.target) for c in manifest.commands] == [
        ("ledgerly", "ledgerly.cli.main:run"),
        ("pytest", ""),
    ]
    assert all(c.text in lines[c.place.line - 1] or "tests" in c.note for c in manifest.commands)
    assert manifest.requires == ["click", "rich"] and manifest.requires_at is not None
    assert lines[manifest.requires_at.line - 1].startswith("dependencies")
    assert str(manifest.needs[0].place) == "pyproject.toml:9" and manifest.builder is not None


PACKAGE = {
    "name": "plotline",
    "version": "0.3.1",
    "description": "A shared story board.",
    "bin": {"plotline": "dist/cli.js"},
    "scripts": {"build": "tsc -p .", "test": "vitest run", "release": "np"},
    "dependencies": {"ws": "^8"},
    "engines": {"node": ">=20"},
}


def test_a_package_json_is_read_with_its_lines() -> None:
    text = json.dumps(PACKAGE, indent=2)
    manifest = read_manifest("package.json", text)
    assert manifest is not None
    lines = text.split("\n")
    for command in manifest.commands:
        word = command.text.removeprefix("npm run ").removeprefix("npm ")
        assert f'"{word}"' in lines[command.place.line - 1] or "require" in command.text
    assert [c.text for c in manifest.commands][-2:] == ["npm run build", "npm test"]
    assert manifest.needs[0].text == "Node >=20" and manifest.requires == ["ws"]


def test_a_key_of_json_has_its_own_line_though_others_are_called_the_same() -> None:
    text = '{\n "a": {"name": 1},\n "b": [\n  {"name": "x, {y"},\n  {"name": 3}],\n "name": 4\n}'
    lines = key_lines(text)
    assert lines["a", "name"] == 2 and lines["b", 1, "name"] == 5 and lines[("name",)] == 6


def test_a_cargo_manifest_names_its_programs() -> None:
    text = (
        '[package]\nname = "tidewatch"\nversion = "2.0.0"\n\n[[bin]]\nname = "tw"\n'
        'path = "src/tw.rs"\n\n[dependencies.serde]\nversion = "1"\n'
    )
    manifest = read_manifest("Cargo.toml", text)
    assert manifest is not None
    assert [(c.text, c.target, c.place.line) for c in manifest.commands] == [("tw", "src/tw.rs", 5)]
    assert manifest.requires == ["serde"] and str(manifest.requires_at) == "Cargo.toml:9"


def test_the_other_manifests_give_names_and_versions() -> None:
    texts = {
        "go.mod": "module example.com/mail/postbox/v2\n\ngo 1.22\n\nrequire example.com/x v1.0.0\n",
        "configure.ac": "dnl x\nAC_INIT([tmux], 3.3a)\n",
        "shop.gemspec": 's.name = "shop"\ns.version = "1.0"\ns.summary = "Sells."\n',
        "composer.json": '{"name": "a/b", "description": "PHP.", "require": {"php": ">=8"}}',
        "setup.cfg": "[metadata]\nname = old\nversion = 3\n",
        "pom.xml": "<project>\n<parent>\n<artifactId>up</artifactId>\n</parent>\n"
        "<artifactId>junit</artifactId>\n<version>4</version>\n</project>\n",
        "CMakeLists.txt": "# project(old VERSION 9)\ncmake_minimum_required(VERSION 3.9)\n"
        "project(leveldb\n  VERSION 1.23.0\n  LANGUAGES C CXX)\n",
    }
    manifests = {path: read_manifest(path, text) for path, text in texts.items()}
    names = {path: (one.name, one.version) for path, one in manifests.items() if one}
    assert names == {
        "go.mod": ("postbox", ""),
        "configure.ac": ("tmux", "3.3a"),
        "shop.gemspec": ("shop", "1.0"),
        "composer.json": ("a/b", ""),
        "setup.cfg": ("old", "3"),
        "pom.xml": ("junit", "4"),
        "CMakeLists.txt": ("leveldb", "1.23.0"),
    }
    assert (cmake := manifests["CMakeLists.txt"]) and str(
        cmake.builder and cmake.builder.place
    ) == ("CMakeLists.txt:3")


def test_a_macro_is_no_version() -> None:
    manifest = read_manifest("configure.ac", "AC_INIT([jq],[jq_version],[],[jq],[])\n")
    assert manifest is not None and (manifest.name, manifest.version) == ("jq", "")


@pytest.mark.parametrize("names", ['["puma", "pumactl"]', "%w[puma pumactl]", "%w(puma pumactl)"])
def test_the_executables_of_a_gem_are_its_commands(names: str) -> None:
    manifest = read_manifest("p.gemspec", f's.name = "puma"\n  s.executables = {names}\n')
    assert manifest is not None
    assert [(c.text, c.place.line) for c in manifest.commands] == [("puma", 2), ("pumactl", 2)]


def test_a_package_json_without_a_name_has_nothing_to_ask_for() -> None:
    manifest = read_manifest("mini/package.json", '{"main": "./index.cjs", "bin": {"a": "a.js"}}')
    assert manifest is not None and manifest.commands == []


def test_targets_of_a_makefile_are_those_that_a_newcomer_looks_for() -> None:
    text = "X := 1\nall: a b ## build it\ntest:\n\tgo test\n.PHONY: all\nsecret-thing:\n\ttrue\n"
    manifest = read_manifest("Makefile", text)
    assert manifest is not None
    assert [(c.text, c.note, c.place.line) for c in manifest.commands] == [
        ("make", "build it", 2),
        ("make test", "", 3),
    ]


@pytest.mark.parametrize(
    "text", ["[project", '{"name": ', "\0", "[a]\nb = ", '{"scripts": {"a": 1}}', "[]"]
)
def test_a_manifest_that_cannot_be_read_says_nothing(text: str) -> None:
    for path in ("pyproject.toml", "package.json", "Cargo.toml", "composer.json", "setup.cfg"):
        manifest = read_manifest(path, text)
        assert manifest is None or not manifest.commands


def test_the_manifest_of_the_root_names_the_project() -> None:
    texts = {
        "web/package.json": '{"name": "web"}',
        "pyproject.toml": PYPROJECT,
        "Makefile": "test:\n",
    }
    assert read_project(texts).name == "Ledgerly"
    assert not is_manifest("web/Makefile") and not is_manifest("a/b/c/package.json")


README = """\
<p align="center"><img src="x.png"></p>

[![build](https://example.invalid/b.svg)](https://example.invalid) [![docs](d.svg)](e)

# Plotline

> Quoted.

Copyright 2020 Somebody. Licensed under the MIT License.

Plotline is a [board](https://example.invalid) for **writers**. It is small.

## Building

```sh
$ git clone https://example.invalid
$ make
$ sudo make install
```

## Usage

```
make coffee
```
"""


def test_the_first_paragraph_is_text_and_no_badge_heading_or_licence() -> None:
    paragraph = readme.first_paragraph("README.md", README)
    assert paragraph is not None
    assert first_sentence(paragraph.text) == "Plotline is a board for writers."
    assert README.split("\n")[paragraph.place.line - 1].startswith("Plotline is")


@pytest.mark.parametrize("text", ["A tiny parser.", "An ORM.", "Fast JSON for C"])
def test_the_first_paragraph_may_be_short(text: str) -> None:
    paragraph = readme.first_paragraph(
        "README.md", f"# tiny\n\n{text}\n\n## Install\n\nRun `make`.\n"
    )
    assert paragraph is not None and (paragraph.text, paragraph.place.line) == (text, 3)


@pytest.mark.parametrize(
    "text", ["[English](a.md) | Deutsch", "See also:", "beta", "Welcome to tiny!", "Hi there"]
)
def test_a_row_of_links_a_greeting_or_a_single_word_is_no_purpose(text: str) -> None:
    paragraph = readme.first_paragraph(
        "README.md", f"# tiny\n\n{text}\n\nIt parses small languages.\n"
    )
    assert paragraph is not None and paragraph.text == "It parses small languages."


def test_commands_of_a_readme_stand_under_a_heading_about_building() -> None:
    commands = readme.commands("README.md", README)
    assert [c.text for c in commands] == ["make", "sudo make install"]
    assert all(c.text in README.split("\n")[c.place.line - 1] for c in commands)


@pytest.mark.parametrize(
    "text",
    [
        "Copyright (c) 2001 The Regents of the University of California.",
        "Permission is hereby granted, free of charge, to any person",
        "SPDX-License-Identifier: MIT",
        "All rights reserved.",
        "Licensed under the Apache License, Version 2.0",
    ],
)
def test_a_licence_is_no_description(text: str) -> None:
    assert is_licence(text)
    assert readme.first_paragraph("README", f"{text}\n\nTakes mail for people without a server.\n")
    paragraph = readme.first_paragraph(
        "README", f"{text}\n\nTakes mail for people without a server.\n"
    )
    assert paragraph is not None and paragraph.place.line == 3


@pytest.mark.parametrize(
    ("n", "noun", "text"),
    [
        (1, "file", "1 file"),
        (2, "copy", "2 copies"),
        (1200, "line", "1,200 lines"),
        (2, "class", "2 classes"),
        (2, "file of packaging", "2 files of packaging"),
        (29, "other named type", "29 other named types"),
        (2, "method named test*", "2 methods named test*"),
        (2, "alias", "2 aliases"),
        (3, "more ending", "3 more endings"),
    ],
)
def test_nouns_are_counted_as_people_do(n: int, noun: str, text: str) -> None:
    assert plural(n, noun) == text
