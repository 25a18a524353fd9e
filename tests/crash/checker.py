"""Holds what a workload left behind against its plan: the log, the books of the tools and the
channel's receipts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from struct import pack

import msgspec

from retinue.core.trees import Trees
from retinue.core.values import Limits
from retinue.store.row_batch import read_entry, read_run
from tests.crash import plan as plans
from tests.crash.evidence import Evidence, Kept, Made
from tests.crash.plan import Node, Plan
from tests.crash.workload import LOG

KINDS = ("lost", "twice", "unsafe_reruns", "announcements_lost", "announcements_twice", "broken")
UNKNOWN = "(outcome_unknown)"
BY_MACHINE = ("submit_result", "submit_error")
"""Tools of the package itself: they keep no book of their own."""


@dataclass(frozen=True)
class Fault:
    """`kind` is one of KINDS; `broken` is everything that is wrong and neither lost nor
    repeated."""

    kind: str
    text: str


@dataclass
class Findings:
    faults: list[Fault] = field(default_factory=list)
    outcome_unknown: int = 0
    reruns: int = 0
    """Calls that may be repeated and were."""

    repeats: int = 0
    """Deliveries that the channel dropped because it had their key."""


def check(folder: Path, plan: Plan) -> Findings:
    found = Evidence(folder)
    findings = Findings()
    for part in (
        _everybody,
        _ends,
        _heard,
        _histories,
        _forks,
        _unsafe,
        _repeatable,
        _intents,
        _models,
        _paid,
    ):
        findings.faults += part(found, plan)
    for part in (_announcements, _roots, _books, _log, _fold, _artifacts):
        findings.faults += part(found, plan)
    if found.outcomes["stuck"]:
        findings.faults.append(Fault("broken", "nothing moved any more before all was done"))
    findings.faults += [Fault("broken", f"verify says: {text}") for text in found.outcomes["wrong"]]
    findings.outcome_unknown = sum(
        UNKNOWN in r["text"] for made in found.calls.values() for r in made.results
    )
    starts = Counter(line["key"] for line in found.lines("start"))
    findings.reruns = sum(n - 1 for n in starts.values())
    findings.repeats = sum(r["is"] == "again" for r in found.receipts)
    return findings


def _chain(plan: Plan, node: Node) -> tuple[str, ...]:
    """Whose tasks a fork inherits."""
    parents = {n.name: (n, p) for n, p in plan.everybody()}
    out: list[str] = []
    while node.fork:
        above = parents[node.name][1]
        assert above is not None
        out.insert(0, above.name)
        node = above
    return tuple(out)


def _pairs(found: Evidence, plan: Plan) -> Iterator[tuple[Node, Kept, Kept | None]]:
    """Each planned run that is there, with its parent's row."""
    for node, _ in plan.everybody():
        for kept in found.by_name[node.name][:1]:
            yield node, kept, found.runs.get(kept.parent)


def _everybody(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """Each planned run exists once, under the right parent, and has ended; there are no others."""
    planned = {node.name: parent for node, parent in plan.everybody()}
    for name, parent in planned.items():
        rows = found.by_name[name]
        if len(rows) != 1:
            yield Fault("twice" if rows else "lost", f"{name} was started {len(rows)} times")
        for row in rows:
            above = found.runs[row.parent].name if row.parent in found.runs else ""
            if above != (parent.name if parent else ""):
                yield Fault("broken", f"{name} hangs under {above or 'nobody'}")
    for kept in found.runs.values():
        if kept.name not in planned:
            yield Fault("broken", f"nobody asked for run {kept.id} ({kept.name})")
        if kept.open or kept.body["state"]["is"] != "Ended":
            yield Fault("broken", f"{kept.name} is still open ({kept.state})")


def _ends(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """Results are those of a run that nobody disturbed."""
    for node, kept, _ in _pairs(found, plan):
        want, have = plans.ending(node, _chain(plan, node)), kept.ending
        text = (have.get("state"), have.get("stop"), have.get("text", ""))
        if text != (want.state, want.stop, want.text) or kept.state != want.state:
            yield Fault(
                "lost", f"{node.name} ended {text}, not {(want.state, want.stop, want.text)}"
            )
        elif want.error and have.get("error") != want.error:
            yield Fault(
                "lost",
                f"{node.name} ended with the error {have.get('error')!r}, not {want.error!r}",
            )
        elif node.kind == "data" and have["data"] != msgspec.json.decode(want.text):
            yield Fault("lost", f"{node.name} handed in {have['data']}")


def _heard(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """What a child reports and what it wrote stands once in its parent's conversation."""
    for node, parent in plan.everybody():
        for kept in found.by_name[parent.name][:1] if parent else ():
            must = parent is not None and node in parent.reporting()
            tokens = [plans.ending(node, _chain(plan, node)).token]
            tokens += [plans.mail(node.name) for act in node.acts() if act.tool == "tell"]
            for token in tokens:
                times = sum(text.count(token) for text in kept.heard())
                if times > 1:
                    yield Fault(
                        "twice",
                        f"{token!r} stands {times} times in the conversation of {kept.name}",
                    )
                if must and not times:
                    yield Fault("lost", f"{token!r} is not in the conversation of {kept.name}")
    for run, mail in found.mail:
        if run not in found.runs:
            yield Fault("broken", f"mail for {run}, which is not there: {mail}")


def _histories(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """Messages have no gaps, there is one reply a turn, and each call has one result, in the
    reply's own place."""
    for node, kept, _ in _pairs(found, plan):
        first = kept.base[1] if kept.base else 0
        length = kept.body.get("length", 0)
        if sorted(kept.messages) != list(range(first, length)):
            yield Fault(
                "lost",
                f"the messages of {node.name} are {sorted(kept.messages)}, not {first} to "
                f"{length - 1}",
            )
        turns = kept.body.get("turn", 0)
        if len(kept.said()) != turns:
            yield Fault(
                "twice", f"{node.name} took {turns} turns and has {len(kept.said())} replies"
            )
    for made in found.calls.values():
        name, ended_in_it = (
            found.runs[made.run].name,
            found.runs[made.run].state in ("cancelled", "timed_out"),
        )
        if not made.tool:
            yield Fault("twice", f"a result of {name} has no call: {made.id}")
        elif len(made.results) > 1:
            yield Fault("twice", f"call {made.id} of {name} has {len(made.results)} results")
        elif not made.results and not ended_in_it and found.runs[made.run].state != "interrupted":
            yield Fault("lost", f"call {made.id} ({made.tool}) of {name} has no result")


def _forks(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """A fork's prefix is its parent's conversation up to the reply that started it."""
    for node, kept, parent in _pairs(found, plan):
        if not node.fork or parent is None:
            continue
        slot = kept.spec["slot"]
        replies = [n for n, m in sorted(parent.messages.items()) if m["role"] == "assistant"]
        want = (parent.id, replies[slot["turn"] - 1]) if slot["turn"] <= len(replies) else None
        if kept.base != want:
            yield Fault("broken", f"{node.name} is a fork of {kept.base}, not of {want}")


def _unsafe(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """Started at most once; one that was interrupted is reported as unknown, and only such a one
    has no end."""
    starts = Counter(line["key"] for line in found.lines("start") if line["tool"] == "unsafe")
    ends = Counter(line["key"] for line in found.lines("end") if line["tool"] == "unsafe")
    for key, n in starts.items():
        if n > 1:
            yield Fault("unsafe_reruns", f"{key} was started {n} times")
    for made in found.calls.values():
        if made.tool != "unsafe" or len(made.results) != 1:
            continue
        (result,) = made.results
        if UNKNOWN in result["text"]:
            if not result.get("error"):
                yield Fault("broken", f"{made.key} is unknown and not marked as an error")
        elif result["text"] != _answer(made):
            yield Fault("broken", f"{made.key} was answered with {result['text']!r}")
        elif ends[made.key] != 1:
            yield Fault(
                "broken", f"{made.key} was interrupted, and its result says that it was not"
            )


def _repeatable(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """What may be repeated has its true result in the end."""
    ends = Counter(line["key"] for line in found.lines("end"))
    for made in found.calls.values():
        for result in made.results:
            if made.tool != "unsafe" and UNKNOWN in result["text"]:
                yield Fault(
                    "broken", f"{made.key} ({made.tool}) could be repeated and was given up"
                )
            if made.tool in ("pure", "keyed") and (
                result["text"] != _answer(made) or not ends[made.key]
            ):
                yield Fault(
                    "lost", f"{made.key} ({made.tool}) was answered with {result['text']!r}"
                )


def _answer(made: Made) -> str:
    return plans.answer(made.tool, made.args["node"], made.args["step"], made.args["n"])


def _intents(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """Nothing was done before it was on record, and nothing for a run that the log had done
    with."""
    for line in found.lines("start"):
        made = found.calls.get(line["key"])
        if made is None or (made.id, made.tool, made.run) != (
            line["call"],
            line["tool"],
            line["run"],
        ):
            yield Fault(
                "broken",
                f"{line['tool']} {line['key']} was run for call {line['call']}, which is not on "
                "record",
            )
        if line["life"] not in found.lives[line["run"]]:
            yield Fault(
                "broken",
                f"{line['key']} was run in life {line['life']}, in which its run had no step",
            )
    ended = {line["key"] for line in found.lines("end")}
    for made in found.calls.values():
        was_run = (
            made.results
            and made.tool not in ("", *BY_MACHINE)
            and UNKNOWN not in made.results[0]["text"]
        )
        if was_run and made.key not in ended:
            yield Fault(
                "broken", f"{made.key} ({made.tool}) has a result and was never run to its end"
            )


def _models(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """An attempt is made once, after it was recorded; a crash costs a run one reply at most."""
    lines = found.lines("model")
    for (run, attempt), n in Counter((line["run"], line["attempt"]) for line in lines).items():
        if n > 1:
            yield Fault("broken", f"attempt {attempt} of {run} was made {n} times")
    flaky = {node.name for node, _ in plan.everybody() if node.flaky}
    for (run, life, turn), n in Counter(
        (line["run"], line["life"], line["turn"]) for line in lines
    ).items():
        kept = found.runs.get(run)
        if kept is None:
            yield Fault("broken", f"a model was asked for run {run}, which is not on record")
        elif n > 1 + (kept.name in flaky and turn == 0):
            yield Fault(
                "broken", f"turn {turn} of {kept.name} was asked for {n} times in life {life}"
            )
    for line in lines:
        if line["run"] in found.runs and line["attempt"] > found.runs[line["run"]].attempt:
            yield Fault("broken", f"attempt {line['attempt']} of {line['run']} is not on record")
        if line["life"] not in found.lives[line["run"]]:
            yield Fault(
                "broken", f"{line['run']} was asked in life {line['life']}, in which it had no step"
            )


def _paid(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """Every model call that has left is paid for once, answered or not; one that never left costs
    nothing."""
    failed: set[tuple[str, int]] = set()
    for event in found.events:
        told = event.entry["event"]
        if told["event"] == "ModelFailed" and not event.entry.get("stale"):
            failed.add((event.entry["run"], told["attempt"]))
    least, most = (
        Counter(
            run
            for run, _ in {(line["run"], line["attempt"]) for line in found.lines(kind)} - failed
        )
        for kind in ("left", "model")
    )
    for kept in found.runs.values():
        paid, n = kept.body.get("usage", {}).get("turns", 0), (least[kept.id], most[kept.id])
        if not n[0] <= paid <= n[1]:
            yield Fault(
                "broken",
                f"{kept.name} has paid for {paid} model calls, and {n[0]} to {n[1]} have left",
            )


def _announcements(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """Each has one key, reached the channel under it, and is recorded as taken; each try was
    recorded before."""
    expected = {
        found.by_name[n.name][0].id: n
        for n, _ in plan.everybody()
        if n.announce and found.by_name[n.name]
    }
    new = Counter(r["key"] for r in found.receipts if r["is"] == "new")
    questions = [d for d in found.outbox if " asks: " in d["text"]]
    for run, n in Counter(d["run"] for d in questions).items():
        if n > 1:
            yield Fault("announcements_twice", f"the question of {run} was announced {n} times")
    for row in questions:
        if row["state"] != "acked" or not new[row["key"]]:
            yield Fault("announcements_lost", f"the question of {row['run']} is {row['state']}")
    for id, node in expected.items():
        rows = [d for d in found.outbox if d["run"] == id and d not in questions]
        if len(rows) != 1:
            kind = "announcements_twice" if rows else "announcements_lost"
            yield Fault(kind, f"{node.name} has {len(rows)} announcements")
        for row in rows:
            if row["state"] != "acked" or not new[row["key"]]:
                yield Fault(
                    "announcements_lost", f"the announcement of {node.name} is {row['state']}"
                )
        token = plans.ending(node, _chain(plan, node)).token
        times = sum(token in r["text"] for r in found.receipts if r["is"] == "new")
        if times > 1:
            yield Fault(
                "announcements_twice",
                f"the channel took the announcement of {node.name} {times} times",
            )
        if not times:
            yield Fault(
                "announcements_lost", f"the channel never got the announcement of {node.name}"
            )
    tries = Counter(r["key"] for r in found.receipts)
    for row in found.outbox:
        if row["run"] not in expected and row not in questions:
            yield Fault("announcements_twice", f"nobody asked for the announcement of {row['run']}")
        if tries[row["key"]] > row.get("attempts", 0):
            yield Fault("broken", f"delivery {row['key']} was tried more often than is on record")
    for key in new.keys() - {row["key"] for row in found.outbox}:
        yield Fault("announcements_twice", f"the channel got {key}, which is not on record")


def _roots(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """A key makes one run, however often it is asked for, and every answer names that run."""
    roots = [kept for kept in found.runs.values() if not kept.parent]
    if len(roots) != len(plan.roots):
        yield Fault("broken", f"{len(plan.roots)} roots were asked for, there are {len(roots)}")
    for line in found.lines("root"):
        if [line["run"]] != [kept.id for kept in found.by_name[line["name"]]]:
            yield Fault("broken", f"{line['name']} was promised as {line['run']}")


def _books(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """Nothing is held for runs that have ended."""
    for account in found.accounts:
        if any(account.get("held", ())):
            yield Fault("broken", f"account {account['id']} still holds {account['held']}")


def _log(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """The hash chain of each tree, worked out again."""
    heads: dict[str, tuple[int, bytes]] = {}
    for n, event in enumerate(found.events, 1):
        number, chain = heads.get(event.tree) or (
            0,
            sha256(b"retinue tree\0" + event.tree.encode()).digest(),
        )
        chain = sha256(
            chain + pack(">qq", event.number, event.at) + event.digest + event.run.encode()
        ).digest()
        heads[event.tree] = (event.number, chain)
        follows = event.seq == n and event.number == number + 1 and chain == event.chain
        if not follows or sha256(event.body).digest() != event.digest:
            yield Fault(
                "broken",
                f"event {event.seq} is not what was written, or does not follow from those before",
            )
            return
        if event.entry.get("tree", "") != event.tree:
            yield Fault("broken", f"event {event.seq} is in the log of another tree than it says")
            return
    for kept in found.runs.values():
        if not kept.parent and kept.id not in heads:
            yield Fault("broken", f"{kept.name} has no log of its own")
    lives = [
        event.entry["event"]["epoch"]
        for event in found.events
        if event.entry["event"]["event"] == "Opened"
    ]
    if lives != sorted(set(lives)):
        yield Fault("broken", f"epochs do not grow: {lives}")


def _fold(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """The one question put to the core: does the log alone give the rows that are stored?"""
    trees = Trees(Limits())
    try:
        for event in found.events:
            trees.fold(read_entry(event.body))
    except Exception as error:
        yield Fault("broken", f"the log cannot be folded: {type(error).__name__}: {error}")
        return
    folded = trees.take_changes().runs
    for kept in found.runs.values():
        stored = read_run(msgspec.json.encode(kept.body))
        if folded.get(kept.id) != stored:
            yield Fault(
                "broken",
                f"the fold of the log gives another {kept.name}: {folded.get(kept.id)} not "
                f"{stored}",
            )


def _artifacts(found: Evidence, plan: Plan) -> Iterator[Fault]:
    """A text that was cut is kept whole."""
    for made in found.calls.values():
        if made.tool != "long" or len(made.results) != 1:
            continue
        whole = _answer(made).encode()
        name = sha256(whole).hexdigest()
        file = found.folder / f"{LOG}.artifacts" / name[:2] / name
        if name not in made.results[0]["text"] or not file.exists() or file.read_bytes() != whole:
            yield Fault("lost", f"the whole text behind {made.key} is not there")
