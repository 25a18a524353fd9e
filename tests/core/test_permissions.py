"""Which calls are made, asked about and denied: the words of rules, the modes, and who has the last
word."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from retinue.core import call_rules, capabilities, permissions
from retinue.core.call_rules import Verdict
from retinue.core.messages import ToolCall
from retinue.core.values import MODES, PermissionGrant, Permissions, ToolRisk

WRITE = ToolRisk(risk="write", subject="path", guarded=True)
SHELL = ToolRisk(risk="execute", subject="command", guarded=True)
FETCH = ToolRisk(risk="network", subject="url", guarded=True)
READ = ToolRisk(risk="read", subject="path")
OWN = ToolRisk(risk="execute")
SPAWN = ToolRisk(risk="spawn")


def calls(name: str, **args: object) -> ToolCall:
    return ToolCall(id="c", name=name, arguments_json=json.dumps(args))


def verdict(
    call: ToolCall,
    guard: ToolRisk,
    *amount: Permissions,
    grants: tuple[str, ...] = (),
    default: str = "manual",
) -> str:
    chain = [(f"run {n}", h) for n, h in enumerate(amount or (Permissions(),))]
    return permissions.rule_on(
        chain, call, guard, [PermissionGrant(rule=g) for g in grants], default
    ).verdict


def rules(*texts: str, mode: str = "") -> Permissions:
    return Permissions(rules=texts, mode=mode)


@pytest.mark.parametrize(
    ("mode", "row"),
    [
        ("bypassPermissions", ("allow", "allow", "allow", "allow")),
        ("auto", ("allow", "allow", "allow", "ask")),
        ("acceptEdits", ("allow", "allow", "ask", "ask")),
        ("manual", ("allow", "ask", "ask", "ask")),
        ("dontAsk", ("allow", "deny", "deny", "deny")),
        ("plan", ("allow", "deny", "deny", "deny")),
    ],
)
def test_a_mode_says_what_is_made_asked_and_denied(mode: str, row: tuple[str, ...]) -> None:
    about = [("read", READ), ("write", WRITE), ("shell", SHELL), ("fetch", FETCH)]
    assert tuple(verdict(calls(name), guard, rules(mode=mode)) for name, guard in about) == row


def test_every_mode_is_at_least_as_strict_as_the_one_before() -> None:
    for weaker, stronger in itertools.pairwise(MODES):
        for guard in (READ, WRITE, SHELL, FETCH, OWN, SPAWN):
            a, b = (verdict(calls("t"), guard, rules(mode=m)) for m in (weaker, stronger))
            assert permissions.STRICTNESS[a] <= permissions.STRICTNESS[b], (weaker, stronger, guard)


def test_functions_of_the_program_are_not_asked_about_but_a_plan_stays_a_plan() -> None:
    assert [
        verdict(calls("own"), OWN, rules(mode=m)) for m in ("", "manual", "dontAsk", "plan")
    ] == [
        "allow",
        "allow",
        "allow",
        "deny",
    ]
    assert verdict(calls("delegate_tasks"), SPAWN, rules(mode="plan")) == "allow", (
        "children have the same plan"
    )


def test_a_denial_stands_before_a_question_before_a_permission_before_the_mode() -> None:
    every = ("allow: shell(git *)", "ask: shell(git push*)", "deny: shell(*--force*)")
    amount = rules(*every, mode="plan")
    assert verdict(calls("shell", command="git log"), SHELL, amount) == "allow"
    assert verdict(calls("shell", command="git push"), SHELL, amount) == "ask"
    assert verdict(calls("shell", command="git push --force"), SHELL, amount) == "deny"
    assert verdict(calls("shell", command="make"), SHELL, amount) == "deny", (
        "that is the mode's word"
    )


@pytest.mark.parametrize(
    "command",
    [
        "git log; rm -rf .",
        "git log && id",
        "git log | sh",
        "git $(id)",
        "git `id`",
        "git log\nid",
        "git log > x",
        "git ${IFS}",
    ],
)
def test_a_wildcard_does_not_vouch_for_more_than_one_plain_command(command: str) -> None:
    assert verdict(calls("shell", command=command), SHELL, rules("allow: shell(git *)")) == "ask"
    assert (
        verdict(
            calls("shell", command=command),
            SHELL,
            rules("allow: shell(git *)", "deny: shell(git *)"),
        )
        == "deny"
    )
    granted = call_rules.rule_for("allow", "shell", command)
    assert verdict(calls("shell", command=command), SHELL, grants=(granted,)) == "allow", (
        "exactly this was granted"
    )
    assert verdict(calls("shell", command=command + " -x"), SHELL, grants=(granted,)) == "ask"


@pytest.mark.parametrize(
    ("pattern", "path", "is_denied"),
    [
        ("src/**", "src/a/b.py", True),
        ("src/**", "./src//a/../a/b.py", True),
        ("src/*", "src/a/b.py", False),
        ("src/*", "src/b.py", True),
        ("**/.env", ".env", True),
        ("**/.env", "a/b/.env", True),
        (".env", "a/../.env", True),
        (".env", ".envrc", False),
        ("/etc/**", "/etc/passwd", True),
    ],
)
def test_paths_are_compared_without_detours(pattern: str, path: str, is_denied: bool) -> None:
    result = verdict(
        calls("write", path=path), WRITE, rules(f"deny: write({pattern})", mode="bypassPermissions")
    )
    assert (result == "deny") == is_denied
    bounds = (("", (f"deny: write({pattern})",)),)
    assert bool(call_rules.barred_path(bounds, ("write",), path)) == is_denied


def test_a_domain_is_a_host_and_what_is_below_it() -> None:
    amount = rules("allow: fetch(domain:example.org)")
    text = {
        "https://example.org/x": "allow",
        "https://a.example.org": "allow",
        "https://user@example.org:8080/": "allow",
        "https://notexample.org/": "ask",
        "https://example.org.evil.test/": "ask",
        "https://evil.test/?u=https://example.org/": "ask",
        "https://example.org@evil.test/": "ask",
    }
    assert {url: verdict(calls("fetch", url=url), FETCH, amount) for url in text} == text


def test_a_rule_for_many_tools() -> None:
    amount = rules("deny: mcp__files__*")
    assert verdict(calls("mcp__files__write"), OWN, amount) == "deny"
    assert verdict(calls("mcp__other__write"), OWN, amount) == "allow"


@pytest.mark.parametrize(
    "text", ["", "shell", "permit: shell", "allow:", "allow: shell(git", "deny shell", "allow: a b"]
)
def test_what_is_not_a_rule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a rule. Write e.g."):
        call_rules.read_rule(text)


def test_a_child_cannot_permit_itself_what_its_parent_is_asked_about() -> None:
    wide = rules("allow: shell", mode="bypassPermissions")
    assert verdict(calls("shell", command="x"), SHELL, wide, rules(mode="manual")) == "ask"
    assert verdict(calls("shell", command="x"), SHELL, wide, rules(mode="plan")) == "deny"
    assert verdict(calls("shell", command="x"), SHELL, wide, Permissions()) == "ask", (
        "the runtime's mode is the root's"
    )
    derived = capabilities.derive(rules("deny: shell", mode="plan"), wide)
    assert (derived.mode, "deny: shell" in derived.rules) == ("plan", True)


def test_a_grant_answers_a_question_and_never_a_denial() -> None:
    assert verdict(calls("shell", command="make"), SHELL, grants=("allow: shell(make)",)) == "allow"
    assert (
        verdict(
            calls("shell", command="make"),
            SHELL,
            rules("deny: shell"),
            grants=("allow: shell(make)",),
        )
        == "deny"
    )


def test_malformed_arguments_are_asked_about_as_they_are() -> None:
    call = ToolCall(id="c", name="shell", arguments_json='{"command": ')
    assert verdict(call, SHELL, rules("allow: shell(git *)")) == "ask"
    assert "{" in permissions.question_text(call, SHELL)


def test_no_tree_of_rules_lets_a_child_do_what_an_ancestor_may_not() -> None:
    """5,000 random chains, read by a second, plain implementation: the strictest level decides."""
    r = random.Random(7)
    words = ["git log", "git push", "rm x", "make"]
    patterns = ["", "*", "git *", "rm *", "make"]
    for _ in range(5_000):
        chain, amount = [], Permissions()
        for depth in range(r.randint(1, 5)):
            question = Permissions(
                mode=r.choice(("", "", *MODES)),
                rules=tuple(
                    f"{r.choice(('allow', 'ask', 'deny'))}: shell"
                    + (f"({p})" if (p := r.choice(patterns)) else "")
                    for _ in range(r.randint(0, 2))
                ),
            )
            amount = question if not depth else capabilities.derive(amount, question)
            chain.insert(0, (str(depth), amount))
        command = r.choice(words)
        result = permissions.rule_on(chain, calls("shell", command=command), SHELL)
        levels = [
            _plainly(h, command, is_root=n == len(chain) - 1) for n, (_, h) in enumerate(chain)
        ]
        assert permissions.STRICTNESS[result.verdict] == max(
            permissions.STRICTNESS[v] for v in levels
        ), (
            chain,
            command,
        )
        for n in range(1, len(chain)):
            above = permissions.rule_on(chain[n:], calls("shell", command=command), SHELL)
            assert permissions.STRICTNESS[above.verdict] <= permissions.STRICTNESS[result.verdict]
            assert capabilities.exceeds(chain[0][1], chain[n][1]) is None


def _plainly(amount: Permissions, command: str, *, is_root: bool) -> Verdict:
    hits = set()
    for text in amount.rules:
        effect, _, rest = text.partition(": shell")
        pattern = rest[1:-1] if rest else "*"
        if pattern in ("*", command) or (
            pattern.endswith(" *") and command.startswith(pattern[:-1])
        ):
            hits.add(effect)
    for effect in ("deny", "ask", "allow"):
        if effect in hits:
            return effect  # type: ignore[return-value]
    mode = amount.mode or ("manual" if is_root else "bypassPermissions")
    table: dict[str, Verdict] = {
        "bypassPermissions": "allow",
        "auto": "allow",
        "dontAsk": "deny",
        "plan": "deny",
    }
    return table.get(mode, "ask")


def test_no_pattern_takes_long() -> None:
    for pattern in ("*a*a*a*a*a*a*ab", "a" * 200 + "*" * 200 + "b", "?*?*?*?*x"):
        assert (
            verdict(calls("shell", command="a" * 50_000), SHELL, rules(f"deny: shell({pattern})"))
            == "ask"
        )
    deep = "/".join(["**"] * 100 + ["x"])
    assert (
        verdict(calls("write", path="/".join(["a"] * 2_000)), WRITE, rules(f"deny: write({deep})"))
        == "ask"
    )


def test_a_rule_that_asks_keeps_from_a_file_that_nobody_was_asked_about() -> None:
    bounds = (("/ws", ("ask: read(**/.env)", "allow: read(**)")),)
    assert call_rules.barred_path(bounds, ("read", "search"), "/ws/.env") == "ask: read(**/.env)"
    texts = ("read", "conf/../.env", "/ws")
    assert call_rules.barred_path(bounds, ("read", "search"), "/ws/.env", *texts) == ""
    assert (
        call_rules.barred_path(bounds, ("read", "search"), "/ws/.env", "read", "link.txt", "/ws")
        != ""
    )
    assert call_rules.barred_path(bounds, ("read", "search"), "/ws/a.txt") == ""


@pytest.mark.parametrize(
    ("rule", "top", "records"),
    [
        ("deny: read(**/.env)", "/ws", ["**/.env", ".env"]),
        ("deny: read(keys/**)", "/ws", ["keys/**"]),
        ("ask: search(keys/*.pem)", "/ws/keys", ["*.pem"]),
        ("deny: *(/w*/keys/x)", "/ws", ["keys/x"]),
        ("deny: read(/etc/**)", "/ws", []),
        ("deny: write(**/.env)", "/ws", []),
        ("deny: read", "/ws", []),
        ("allow: read(**)", "/ws", []),
    ],
)
def test_patterns_are_seen_from_another_directory(rule: str, top: str, records: list[str]) -> None:
    assert call_rules.patterns_below((("/ws", (rule,)),), ("read", "search"), top) == records
