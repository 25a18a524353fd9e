"""A review compares both versions of each changed file, definition by definition, and every check
has a planted case that it finds and one that it leaves alone."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from threading import Event

import pytest

from retinue.models.explorer.review_job import write_review
from retinue.syntax.changes.change_set import ChangeSet
from retinue.syntax.changes.definition_changes import added_lines
from retinue.syntax.changes.review import review
from retinue.syntax.changes.review_facts import ReviewFacts
from retinue.syntax.changes.versions import parsed_versions
from retinue.syntax.syntax_engine import SyntaxEngine
from retinue.syntax.tree_files import folder_files
from retinue.tools.builtin.git_reading import read_changes, read_history
from tests.explorer.oracle import wrong_places
from tests.explorer.world import commit

BEFORE = {
    "shop/cart.py": '''"""The cart."""


class Cart:
    limit = 10
    owner: str

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.total = 0

    def add(self, price: int) -> int:
        """Add."""
        self.total += price
        return self.total

    def close(self) -> None:
        pass


def gone(x: int) -> int:
    return x


def kept(x: int) -> int:
    # doubles
    return 2 * x
''',
    "shop/web.py": "from shop.cart import Cart, gone, kept\n\n\ndef main() -> int:\n"
    "    cart = Cart('a')\n    cart.total = 3\n    return gone(1) + kept(2) + cart.add(3)\n",
    "tests/test_cart.py": "from shop.cart import kept\n\n\ndef test_kept() -> None:\n"
    "    assert kept(1) == 2\n",
    "CHANGES.md": "# 1.0\n\nFirst.\n",
    "uv.lock": "a = 1\n",
}


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    write(tmp_path, BEFORE)
    commit(tmp_path, "first")
    return tmp_path


def changes_of(root: Path, target: str = "") -> ChangeSet:
    return asyncio.run(read_changes(str(root), (), target, lambda path: (root / path).read_bytes()))


def review_of(root: Path, target: str = "") -> ReviewFacts:
    changes = changes_of(root, target)
    engine = SyntaxEngine()
    with folder_files(str(root)) as files:
        tree = engine.read_tree(files)
    engine.close()
    return review(tree, changes, parsed_versions(changes, Event()))


def edit(root: Path, path: str, old: str, new: str) -> None:
    text = (root / path).read_text(encoding="utf-8")
    assert old in text
    (root / path).write_text(text.replace(old, new), encoding="utf-8")


def rows(facts: ReviewFacts) -> list[tuple[str, str]]:
    return [(row.change, ", ".join(row.names)) for row in facts.changes]


def found(facts: ReviewFacts, severity: str) -> list[str]:
    return [f"{f.place}: {f.text}" for f in facts.findings if f.severity == severity]


def test_definitions_are_paired_and_each_change_is_told_apart(shop: Path) -> None:
    edit(shop, "shop/cart.py", "def add(self, price: int)", "def add(self, price: int, n: int)")
    edit(shop, "shop/cart.py", "        self.total = 0\n", "        self.total = 1\n")
    edit(shop, "shop/cart.py", "    limit = 10", "    limit = 20")
    edit(shop, "shop/cart.py", "# doubles", "# makes it twice as much")
    edit(
        shop,
        "shop/cart.py",
        "def gone(x: int) -> int:\n    return x\n",
        "def fresh() -> None:\n    pass\n",
    )
    assert rows(review_of(shop)) == [
        ("added", "fresh"),
        ("removed", "gone"),
        ("signature", "Cart.add"),
        ("body", "Cart.__init__"),
        ("value", "Cart.limit"),
        ("comments", "kept"),
    ]


OVERLOADS = """from typing import overload


@overload
def pick(x: int) -> int: ...
@overload
def pick(x: str) -> str: ...
def pick(x):
    return x
"""


def test_an_overload_that_goes_leaves_the_others_as_they_were(shop: Path) -> None:
    write(shop, {"shop/pick.py": OVERLOADS, "CHANGES.md": "Nothing.\n"})
    commit(shop, "second")
    edit(shop, "shop/pick.py", "@overload\ndef pick(x: int) -> int: ...\n", "")
    facts = review_of(shop)
    assert rows(facts) == [("removed", "pick")]
    assert "public definition was removed" not in "".join(found(facts, "low"))
    edit(shop, "shop/pick.py", "def pick(x: str) -> str", "def pick(x: bytes) -> bytes")
    assert rows(review_of(shop)) == [("removed", "pick"), ("signature", "pick")]


def test_a_file_that_only_moved_changes_no_definition(shop: Path) -> None:
    subprocess.run(["git", "mv", "shop/cart.py", "shop/basket.py"], cwd=shop, check=True)
    assert rows(review_of(shop)) == []


def test_a_removed_function_that_is_still_called_is_high(shop: Path) -> None:
    edit(shop, "shop/cart.py", "def gone(x: int) -> int:\n    return x\n", "")
    facts = review_of(shop)
    assert found(facts, "high") == [
        "shop/web.py:7: `gone` was removed from shop/cart.py and is still called; no definition of "
        "this name is left."
    ]


def test_a_removed_function_that_nobody_calls_is_no_finding(shop: Path) -> None:
    edit(shop, "shop/cart.py", "    def close(self) -> None:\n        pass\n", "")
    assert found(review_of(shop), "high") == found(review_of(shop), "medium") == []


def test_a_signature_with_callers_outside_of_the_change_is_medium(shop: Path) -> None:
    edit(shop, "shop/cart.py", "def kept(x: int)", "def kept(x: int, y: int)")
    (one,) = found(review_of(shop), "medium")
    assert one.startswith("shop/cart.py:25: the signature of `kept` changed, and 2 files")


def test_a_parameter_with_a_default_is_no_finding(shop: Path) -> None:
    edit(shop, "shop/cart.py", "def kept(x: int)", "def kept(x: int, y: int = 0)")
    assert found(review_of(shop), "medium") == []


def test_an_attribute_that_became_a_property_and_is_still_set_is_medium(shop: Path) -> None:
    edit(shop, "shop/cart.py", "        self.total = 0\n", "")
    edit(
        shop,
        "shop/cart.py",
        "    def close(self)",
        "    @property\n    def total(self) -> int:\n        return 0\n\n    def close(self)",
    )
    edit(shop, "shop/web.py", "cart.total = 3", "cart.total = 4")
    assert any(
        one.startswith("shop/web.py:6: `.total` is assigned")
        for one in found(review_of(shop), "medium")
    )


LATER = "".join(("TO", "DO"))
PLANTED = [
    ("high", "shop/web.py", "<" * 7 + " HEAD\n", "a mark of a merge conflict."),
    ("high", "notes.md", "AKIA" + "ABCDEFGHIJKLMNOP\n", "an AWS access key in the text."),
    ("high", "shop/more.py", "def broken(:\n    return (\n", "the grammar cannot read"),
    ("low", "shop/more.py", "try:\n    pass\nexcept:\n    pass\n", "an `except` that catches"),
    ("low", "shop/more.py", "def f() -> None:\n    breakpoint()\n", "a call of a debugger."),
    ("low", "shop/more.py", "def f(x: object) -> None:\n    assert x is not None\n", "`assert`"),
    ("info", "shop/more.py", "import x  # type: ignore\n", "`type: ignore` was added."),
    ("info", "shop/more.py", "# " + LATER + ": later\n", "was added."),
]


@pytest.mark.parametrize(("severity", "path", "text", "texts"), PLANTED)
def test_each_check_finds_what_was_planted(
    severity: str, path: str, text: str, texts: str, shop: Path
) -> None:
    name = shop / path
    before = name.read_text(encoding="utf-8") if name.exists() else ""
    write(shop, {path: before + text})
    assert any(texts in one for one in found(review_of(shop), severity))


@pytest.mark.parametrize(
    "text",
    [
        '"""How to write it:\n\nexcept:\n    breakpoint()\n    assert x is not None\n"""\n',
        "x = 'breakpoint()'\n",
        "def f() -> None:\n    assert 1 == 1\n",
    ],
)
def test_what_stands_in_a_text_is_no_code(text: str, shop: Path) -> None:
    write(shop, {"shop/more.py": text})
    assert found(review_of(shop), "low") == []


def test_a_default_of_a_public_attribute_and_a_silent_changelog_are_low(shop: Path) -> None:
    edit(shop, "shop/cart.py", "    limit = 10", "    limit = 20")
    edit(shop, "shop/cart.py", "def kept(x: int)", "def kept(x: str)")
    low = found(review_of(shop), "low")
    assert any("`Cart.limit`, `10` is now `20`" in one for one in low)
    assert any("`kept`, and CHANGES.md does not name it" in one for one in low)
    edit(shop, "CHANGES.md", "First.", "First.\n\n- `kept` takes a text.")
    assert not any("CHANGES.md" in one for one in found(review_of(shop), "low"))


def test_a_lock_file_is_named_as_not_read_and_then_it_is_not_complete(shop: Path) -> None:
    write(shop, {"uv.lock": "a = 2\n"})
    facts = review_of(shop)
    assert [(u.path, u.why) for u in facts.unread] == [("uv.lock", "a lock file")]
    assert "\ncomplete: no\n" in write_review(facts, full=False).text()
    edit(shop, "shop/web.py", "Cart('a')", "Cart('b')")
    subprocess.run(["git", "checkout", "-q", "uv.lock"], cwd=shop, check=True)
    assert "\ncomplete: yes\n" in write_review(review_of(shop), full=False).text()


def test_a_clean_tree_has_its_last_commit_reviewed(shop: Path) -> None:
    edit(shop, "shop/web.py", "Cart('a')", "Cart('b')")
    commit(shop, "Another owner")
    changes = changes_of(shop)
    assert changes.title.startswith("the last commit, ") and '"Another owner"' in changes.title
    assert [file.path for file in changes.files] == ["shop/web.py"]
    assert changes.is_on_disk


def test_the_first_commit_of_a_repository_can_be_reviewed(shop: Path) -> None:
    assert {file.path for file in changes_of(shop).files} == set(BEFORE)
    assert changes_of(shop, "HEAD~1..HEAD").files


@pytest.mark.parametrize("target", ["1.0..1.1", "1.0...1.1", "1.0"])
def test_a_range_of_tags_is_reviewed(target: str, shop: Path) -> None:
    subprocess.run(["git", "tag", "1.0"], cwd=shop, check=True)
    edit(shop, "shop/web.py", "Cart('a')", "Cart('b')")
    commit(shop, "Another owner")
    subprocess.run(["git", "tag", "1.1"], cwd=shop, check=True)
    assert [file.path for file in changes_of(shop, target).files] == ["shop/web.py"]
    assert rows(review_of(shop, target)) == [("body", "main")]


@pytest.mark.parametrize("target", ["nothing..here", "--output=x", "-p", "HEAD~99..HEAD"])
def test_a_revision_that_does_not_exist_is_said_and_runs_nothing(target: str, shop: Path) -> None:
    changes = changes_of(shop, target)
    assert "there is no commit" in changes.problem and not changes.files
    assert not (shop / "x").exists()


def test_outside_of_git_there_is_a_clear_word(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "x = 1\n"})
    assert changes_of(tmp_path).problem == "this is not a git working tree"
    assert asyncio.run(read_history(str(tmp_path), ())).problem == "this is not a git working tree"


def test_a_repository_without_commits_has_no_history_and_nothing_to_compare(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert "no commit yet" in asyncio.run(read_history(str(tmp_path), ())).problem
    assert "no commit yet" in changes_of(tmp_path).problem


def test_history_counts_the_commits_of_each_file(shop: Path) -> None:
    for n in range(3):
        edit(shop, "shop/web.py", "cart.total = ", f"cart.total = {n} + ")
        commit(shop, f"change {n}")
    found_ = asyncio.run(read_history(str(shop), ()))
    assert found_.n_commits == 4 and found_.changes["shop/web.py"] == 4
    assert found_.changes["CHANGES.md"] == 1 and found_.first <= found_.last


def test_history_and_changes_run_nothing_that_a_repository_names(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no sandbox: the commands are ours, and so are the settings."""
    monkeypatch.setattr("retinue.sandbox.git_process._bwrap", lambda: "")
    trap = shop / "trap.sh"
    trap.write_text("#!/bin/sh\ntouch sprung\ncat\n")
    trap.chmod(0o755)
    for name in (
        "core.fsmonitor",
        "core.pager",
        "diff.external",
        "diff.x.textconv",
        "diff.x.command",
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
        "core.sshCommand",
    ):
        subprocess.run(["git", "config", name, str(trap)], cwd=shop, check=True)
    write(shop, {".gitattributes": "*.py diff=x filter=x\n"})
    edit(shop, "shop/web.py", "Cart('a')", "Cart('b')")
    assert asyncio.run(read_history(str(shop), ())).n_commits == 1
    assert "shop/web.py" in {file.path for file in changes_of(shop).files}
    assert not list(shop.rglob("sprung"))


def test_the_report_has_every_place_right_and_the_lines_for_programs(shop: Path) -> None:
    edit(shop, "shop/cart.py", "def gone(x: int) -> int:\n    return x\n", "")
    edit(shop, "shop/cart.py", "    limit = 10", "    limit = 20")
    report = write_review(review_of(shop), full=False).text()
    assert report.startswith("# Review of uncommitted changes\n\nseverity: high\ncomplete: yes\n")
    assert wrong_places(shop, report) == []
    assert report.rstrip().split("\n---\n")[-1].startswith("offline, no model.")


def test_added_lines_have_their_numbers() -> None:
    assert added_lines(b"a\nb\nc\n", b"a\nx\nb\nc\ny\n") == [(2, "x"), (5, "y")]
    assert added_lines(None, b"a\n") == [(1, "a")]
    assert added_lines(b"a\n", None) == []
