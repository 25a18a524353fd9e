"""Capabilities only shrink: at spawn, after a revocation, and through a parent that has ended."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core import capabilities
from retinue.core.events import PermissionsRestricted
from retinue.core.values import MODES, Permissions
from tests.core.driver import START, Story, call, hand

NAMES = ["a", "b", "c", "d", "e"]
RULES = ["allow: a", "ask: b(x*)", "deny: c", "deny: a(y)"]
PATHS = ["/", "/a", "/a/b", "/a/b/c", "/ab", "/c/d", "e", "e/f", "/a/../c", ".."]


def subsets(names: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.integers(0, 2 ** len(names) - 1).map(
        lambda bits: tuple(sorted(n for i, n in enumerate(names) if bits >> i & 1))
    )


def maybe(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | strategy


def permission_sets(paths: list[str]) -> st.SearchStrategy[Permissions]:
    sets = {
        name: maybe(subsets(paths if name in capabilities.PATHS else NAMES))
        for name in capabilities.SETS
    }
    return st.builds(
        Permissions,
        **sets,
        deny=subsets(NAMES),
        depth=maybe(st.integers(0, 5)),
        fanout=maybe(st.integers(0, 9)),
        may_spawn=st.booleans(),
        sandbox=st.integers(0, 3),
        expires=maybe(st.integers(0, 100)),
        mode=st.sampled_from(("", *MODES)),
        rules=subsets(RULES),
    )


CAPABILITIES = permission_sets(PATHS)
SANE = permission_sets([p for p in PATHS if ".." not in p])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(SANE, st.lists(SANE, min_size=5, max_size=5), st.lists(SANE, min_size=5, max_size=5))
def test_nobody_down_the_tree_has_more_than_anybody_above(
    root: Permissions, question: list, cuts: list
) -> None:
    chain = [root]
    for request, end in zip(question, cuts, strict=True):
        child = capabilities.derive(chain[-1], request)
        chain.append(capabilities.narrow(child, end))
        assert capabilities.exceeds(chain[-1], child) is None
    for n, lower in enumerate(chain):
        for upper in chain[:n]:
            assert capabilities.exceeds(lower, upper) is None


@settings(max_examples=200, deadline=None, derandomize=True)
@given(SANE)
def test_everybody_has_as_much_as_itself_and_a_child_can_ask_for_that(
    permissions: Permissions,
) -> None:
    assert capabilities.exceeds(permissions, permissions) is None
    assert capabilities.narrow(permissions, Permissions()) == permissions
    assert capabilities.narrow(permissions, permissions) == permissions


@settings(max_examples=200, deadline=None, derandomize=True)
@given(CAPABILITIES, CAPABILITIES)
def test_a_path_that_climbs_is_never_given(parent: Permissions, permissions: Permissions) -> None:
    child = capabilities.derive(parent, permissions)
    assert capabilities.exceeds(child, parent) is None


@settings(max_examples=200, deadline=None, derandomize=True)
@given(SANE, SANE)
def test_a_gate_lets_through_what_both_allow_and_nothing_else(
    a: Permissions, b: Permissions
) -> None:
    child = capabilities.derive(a, b)
    for tool in NAMES:
        both = capabilities.allows(a, tool) and capabilities.allows(b, tool)
        assert capabilities.allows(child, tool) == both
        chain = [("child", child), ("parent", a)]
        live = all(c.expires is None or c.expires > 50 for _, c in chain)
        assert (capabilities.gate(chain, tool, 50) is None) == (both and live)
        assert capabilities.explain(chain, tool, 50).startswith("refused") != (both and live)


def pick(rng: random.Random, names: list[str]) -> tuple[str, ...] | None:
    return None if rng.random() < 0.3 else tuple(sorted(n for n in names if rng.random() < 0.5))


def anything(rng: random.Random) -> Permissions:
    clean = [p for p in PATHS if ".." not in p]
    return Permissions(
        tools=pick(rng, NAMES),
        deny=pick(rng, NAMES) or (),
        agents=pick(rng, NAMES),
        models=pick(rng, NAMES),
        read=pick(rng, clean),
        write=pick(rng, clean),
        hosts=pick(rng, NAMES),
        env=pick(rng, NAMES),
        announce=pick(rng, NAMES),
        comms=pick(rng, NAMES),
        depth=rng.choice([None, 0, 1, 2, 3]),
        fanout=rng.choice([None, 0, 5]),
        may_spawn=rng.random() < 0.8,
        sandbox=rng.randrange(3),
        expires=rng.choice([None, 10, 20]),
        mode=rng.choice(("", *MODES)),
        rules=pick(rng, RULES) or (),
    )


def test_random_trees_only_shrink() -> None:
    """5,000 of them; RETINUE_TREES asks for more."""
    rng = random.Random(7)
    for _ in range(int(os.environ.get("RETINUE_TREES", "5000"))):
        top = amount = anything(rng)
        for _ in range(rng.randrange(1, 6)):
            below = capabilities.derive(amount, anything(rng))
            if rng.random() < 0.3:
                below = capabilities.narrow(below, anything(rng))
            assert capabilities.exceeds(below, amount) is None
            amount = below
        assert capabilities.exceeds(amount, top) is None


@pytest.mark.parametrize(
    ("field", "more", "less"),
    [
        ("tools", None, ("a",)),
        ("agents", ("a", "b"), ("a",)),
        ("read", ("/",), ("/a",)),
        ("deny", (), ("a",)),
        ("depth", 3, 2),
        ("fanout", None, 2),
        ("expires", 20, 10),
        ("may_spawn", True, False),
        ("sandbox", 0, 1),
        ("mode", "auto", "manual"),
        ("mode", "", "plan"),
        ("rules", ("allow: a",), ("deny: a",)),
    ],
)
def test_having_more_is_named(field: str, more: object, less: object) -> None:
    assert capabilities.exceeds(Permissions(**{field: more}), Permissions(**{field: less})) == field


def test_paths_are_whole_components() -> None:
    parent = Permissions(read=("/srv/data",))
    for path, rest in (
        ("/srv/data/x", True),
        ("/srv/database", False),
        ("/srv/data/../etc", False),
        ("/srv", False),
    ):
        child = capabilities.derive(parent, Permissions(read=(path,)))
        assert (path in (child.read or ())) == rest
    assert capabilities.derive(parent, Permissions(read=("/srv",))).read == ("/srv/data",)


def test_a_revocation_is_asked_at_the_next_call() -> None:
    story = Story()
    story.start()
    story.reply("root", "", call("look"))
    story.post("root", PermissionsRestricted(permissions=Permissions(deny=("look",))))
    story.tool("root")
    story.reply("root", "", call("look"))
    assert "Refused: boss denies 'look'." in story.results("root")[-1].text


def test_a_revocation_flows_down_to_those_who_are_at_work() -> None:
    story = Story()
    story.start()
    (a,) = story.spawning("root", hand())
    (b,) = story.spawning(a, hand())
    story.post("root", PermissionsRestricted(permissions=Permissions(tools=("hire", "note"))))
    story.reply(b, "", call("look"))
    assert "boss does not have the tool 'look'" in story.results(b)[-1].text


def test_a_revocation_still_holds_when_the_parent_has_ended() -> None:
    story = Story()
    story.start(children_on_end="keep")
    (child,) = story.spawning("root", hand(join="none"))
    story.post("root", PermissionsRestricted(permissions=Permissions(deny=("look",))))
    story.reply("root", "done")
    assert story.is_("root") == "Ended"
    story.reply(child, "", call("look"))
    assert "denies 'look'" in story.texts(child)


def test_and_after_a_restart() -> None:
    story = Story()
    story.start(children_on_end="keep")
    (child,) = story.spawning("root", hand(join="none"))
    story.post("root", PermissionsRestricted(permissions=Permissions(deny=("look",))))
    story.reply("root", "done")
    story.restart()
    story.reply(child, "", call("look"))
    assert "denies 'look'" in story.texts(child)


@pytest.mark.parametrize(
    "permissions",
    [
        Permissions(may_spawn=False),
        Permissions(depth=0),
        Permissions(agents=()),
        Permissions(models=()),
    ],
)
def test_what_an_ancestor_may_not_start_any_more_nobody_below_it_may(
    permissions: Permissions,
) -> None:
    story = Story()
    story.start()
    (a,) = story.spawning("root", hand())
    story.post("root", PermissionsRestricted(permissions=permissions))
    story.reply(a, "", call("hire"))
    story.order(a, hand())
    assert story.children(a) == []


def test_a_child_that_is_started_after_a_revocation_has_no_more_than_its_ancestors() -> None:
    story = Story()
    story.start()
    (a,) = story.spawning("root", hand())
    story.post(
        "root",
        PermissionsRestricted(permissions=Permissions(hosts=("safe.example",), deny=("note",))),
    )
    (b,) = story.spawning(a, hand())
    top = story.run("root").permissions
    assert top is not None
    assert capabilities.exceeds(story.specs[b].permissions, top) is None


def test_capabilities_expire() -> None:
    story = Story()
    story.start(capabilities=Permissions(expires=START + 100))
    (child,) = story.spawning("root", hand())
    story.later(100)
    story.reply(child, "", call("look"))
    assert "have expired" in story.results(child)[-1].text


def test_a_run_never_has_more_than_its_crew_can_reach() -> None:
    story = Story()
    story.start(permissions=Permissions(tools=("look", "rm")))
    assert story.specs["root"].permissions.tools == ("look",)
