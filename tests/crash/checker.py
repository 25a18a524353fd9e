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
    evidence = Evidence(folder)
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
        findings.faults += part(evidence, plan)
    for part in (_announcements, _roots, _books, _log, _fold, _artifacts):
        findings.faults += part(evidence, plan)
    if evidence.outcomes["stuck"]:
        findings.faults.append(Fault("broken", "nothing moved any more before all was done"))
    findings.faults += [
        Fault("broken", f"verify says: {text}") for text in evidence.outcomes["wrong"]
    ]
    findings.outcome_unknown = sum(
        UNKNOWN in r["text"] for call in evidence.calls.values() for r in call.results
    )
    starts = Counter(line["key"] for line in evidence.lines("start"))
    findings.reruns = sum(n - 1 for n in starts.values())
    findings.repeats = sum(r["is"] == "again" for r in evidence.receipts)
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


def _pairs(evidence: Evidence, plan: Plan) -> Iterator[tuple[Node, Kept, Kept | None]]:
    """Each planned run that is there, with its parent's row."""
    for node, _ in plan.everybody():
        for record in evidence.by_name[node.name][:1]:
            yield node, record, evidence.runs.get(record.parent)


def _everybody(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """Each planned run exists once, under the right parent, and has ended; there are no others."""
    planned = {node.name: parent for node, parent in plan.everybody()}
    for name, parent in planned.items():
        rows = evidence.by_name[name]
        if len(rows) != 1:
            yield Fault("twice" if rows else "lost", f"{name} was started {len(rows)} times")
        for row in rows:
            above = evidence.runs[row.parent].name if row.parent in evidence.runs else ""
            if above != (parent.name if parent else ""):
                yield Fault("broken", f"{name} hangs under {above or 'nobody'}")
    for record in evidence.runs.values():
        if record.name not in planned:
            yield Fault("broken", f"nobody asked for run {record.id} ({record.name})")
        if record.open or record.body["state"]["is"] != "Ended":
            yield Fault("broken", f"{record.name} is still open ({record.state})")


def _ends(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """Results are those of a run that nobody disturbed."""
    for node, record, _ in _pairs(evidence, plan):
        want, have = plans.ending(node, _chain(plan, node)), record.ending
        text = (have.get("state"), have.get("stop"), have.get("text", ""))
        if text != (want.state, want.stop, want.text) or record.state != want.state:
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


def _heard(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """What a child reports and what it wrote stands once in its parent's conversation."""
    for node, parent in plan.everybody():
        for record in evidence.by_name[parent.name][:1] if parent else ():
            must = parent is not None and node in parent.reporting()
            tokens = [plans.ending(node, _chain(plan, node)).token]
            tokens += [plans.mail(node.name) for act in node.acts() if act.tool == "tell"]
            for token in tokens:
                times = sum(text.count(token) for text in record.heard())
                if times > 1:
                    yield Fault(
                        "twice",
                        f"{token!r} stands {times} times in the conversation of {record.name}",
                    )
                if must and not times:
                    yield Fault("lost", f"{token!r} is not in the conversation of {record.name}")
    for run, mail in evidence.mail:
        if run not in evidence.runs:
            yield Fault("broken", f"mail for {run}, which is not there: {mail}")


def _histories(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """Messages have no gaps, there is one reply a turn, and each call has one result, in the
    reply's own place."""
    for node, record, _ in _pairs(evidence, plan):
        first = record.base[1] if record.base else 0
        length = record.body.get("length", 0)
        if sorted(record.messages) != list(range(first, length)):
            yield Fault(
                "lost",
                f"the messages of {node.name} are {sorted(record.messages)}, not {first} to "
                f"{length - 1}",
            )
        turns = record.body.get("turn", 0)
        if len(record.said()) != turns:
            yield Fault(
                "twice", f"{node.name} took {turns} turns and has {len(record.said())} replies"
            )
    for call in evidence.calls.values():
        name, ended_in_it = (
            evidence.runs[call.run].name,
            evidence.runs[call.run].state in ("cancelled", "timed_out"),
        )
        if not call.tool:
            yield Fault("twice", f"a result of {name} has no call: {call.id}")
        elif len(call.results) > 1:
            yield Fault("twice", f"call {call.id} of {name} has {len(call.results)} results")
        elif (
            not call.results and not ended_in_it and evidence.runs[call.run].state != "interrupted"
        ):
            yield Fault("lost", f"call {call.id} ({call.tool}) of {name} has no result")


def _forks(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """A fork's prefix is its parent's conversation up to the reply that started it."""
    for node, record, parent in _pairs(evidence, plan):
        if not node.fork or parent is None:
            continue
        slot = record.spec["slot"]
        replies = [n for n, m in sorted(parent.messages.items()) if m["role"] == "assistant"]
        want = (parent.id, replies[slot["turn"] - 1]) if slot["turn"] <= len(replies) else None
        if record.base != want:
            yield Fault("broken", f"{node.name} is a fork of {record.base}, not of {want}")


def _unsafe(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """Started at most once; one that was interrupted is reported as unknown, and only such a one
    has no end."""
    starts = Counter(line["key"] for line in evidence.lines("start") if line["tool"] == "unsafe")
    ends = Counter(line["key"] for line in evidence.lines("end") if line["tool"] == "unsafe")
    for key, n in starts.items():
        if n > 1:
            yield Fault("unsafe_reruns", f"{key} was started {n} times")
    for call in evidence.calls.values():
        if call.tool != "unsafe" or len(call.results) != 1:
            continue
        (result,) = call.results
        if UNKNOWN in result["text"]:
            if not result.get("error"):
                yield Fault("broken", f"{call.key} is unknown and not marked as an error")
        elif result["text"] != _answer(call):
            yield Fault("broken", f"{call.key} was answered with {result['text']!r}")
        elif ends[call.key] != 1:
            yield Fault(
                "broken", f"{call.key} was interrupted, and its result says that it was not"
            )


def _repeatable(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """What may be repeated has its true result in the end."""
    ends = Counter(line["key"] for line in evidence.lines("end"))
    for call in evidence.calls.values():
        for result in call.results:
            if call.tool != "unsafe" and UNKNOWN in result["text"]:
                yield Fault(
                    "broken", f"{call.key} ({call.tool}) could be repeated and was given up"
                )
            if call.tool in ("pure", "keyed") and (
                result["text"] != _answer(call) or not ends[call.key]
            ):
                yield Fault(
                    "lost", f"{call.key} ({call.tool}) was answered with {result['text']!r}"
                )


def _answer(result: Made) -> str:
    return plans.answer(result.tool, result.args["node"], result.args["step"], result.args["n"])


def _intents(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """Nothing was done before it was on record, and nothing for a run that the log had done
    with."""
    for line in evidence.lines("start"):
        call = evidence.calls.get(line["key"])
        if call is None or (call.id, call.tool, call.run) != (
            line["call"],
            line["tool"],
            line["run"],
        ):
            yield Fault(
                "broken",
                f"{line['tool']} {line['key']} was run for call {line['call']}, which is not on "
                "record",
            )
        if line["life"] not in evidence.lives[line["run"]]:
            yield Fault(
                "broken",
                f"{line['key']} was run in life {line['life']}, in which its run had no step",
            )
    ended = {line["key"] for line in evidence.lines("end")}
    for call in evidence.calls.values():
        was_run = (
            call.results
            and call.tool not in ("", *BY_MACHINE)
            and UNKNOWN not in call.results[0]["text"]
        )
        if was_run and call.key not in ended:
            yield Fault(
                "broken", f"{call.key} ({call.tool}) has a result and was never run to its end"
            )


def _models(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """An attempt is made once, after it was recorded; a crash costs a run one reply at most."""
    lines = evidence.lines("model")
    for (run, attempt), n in Counter((line["run"], line["attempt"]) for line in lines).items():
        if n > 1:
            yield Fault("broken", f"attempt {attempt} of {run} was made {n} times")
    flaky = {node.name for node, _ in plan.everybody() if node.flaky}
    for (run, life, turn), n in Counter(
        (line["run"], line["life"], line["turn"]) for line in lines
    ).items():
        rest = evidence.runs.get(run)
        if rest is None:
            yield Fault("broken", f"a model was asked for run {run}, which is not on record")
        elif n > 1 + (rest.name in flaky and turn == 0):
            yield Fault(
                "broken", f"turn {turn} of {rest.name} was asked for {n} times in life {life}"
            )
    for line in lines:
        if line["run"] in evidence.runs and line["attempt"] > evidence.runs[line["run"]].attempt:
            yield Fault("broken", f"attempt {line['attempt']} of {line['run']} is not on record")
        if line["life"] not in evidence.lives[line["run"]]:
            yield Fault(
                "broken", f"{line['run']} was asked in life {line['life']}, in which it had no step"
            )


def _paid(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """Every model call that has left is paid for once, answered or not; one that never left costs
    nothing."""
    failed: set[tuple[str, int]] = set()
    for event in evidence.events:
        text = event.entry["event"]
        if text["event"] == "ModelFailed" and not event.entry.get("stale"):
            failed.add((event.entry["run"], text["attempt"]))
    least, most = (
        Counter(
            run
            for run, _ in {(line["run"], line["attempt"]) for line in evidence.lines(kind)} - failed
        )
        for kind in ("left", "model")
    )
    for rest in evidence.runs.values():
        paid, n = rest.body.get("usage", {}).get("turns", 0), (least[rest.id], most[rest.id])
        if not n[0] <= paid <= n[1]:
            yield Fault(
                "broken",
                f"{rest.name} has paid for {paid} model calls, and {n[0]} to {n[1]} have left",
            )


def _announcements(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """Each has one key, reached the channel under it, and is recorded as taken; each try was
    recorded before."""
    expected = {
        evidence.by_name[n.name][0].id: n
        for n, _ in plan.everybody()
        if n.announce and evidence.by_name[n.name]
    }
    new = Counter(r["key"] for r in evidence.receipts if r["is"] == "new")
    questions = [d for d in evidence.outbox if " asks: " in d["text"]]
    for run, n in Counter(d["run"] for d in questions).items():
        if n > 1:
            yield Fault("announcements_twice", f"the question of {run} was announced {n} times")
    for row in questions:
        if row["state"] != "acked" or not new[row["key"]]:
            yield Fault("announcements_lost", f"the question of {row['run']} is {row['state']}")
    for id, node in expected.items():
        rows = [d for d in evidence.outbox if d["run"] == id and d not in questions]
        if len(rows) != 1:
            kind = "announcements_twice" if rows else "announcements_lost"
            yield Fault(kind, f"{node.name} has {len(rows)} announcements")
        for row in rows:
            if row["state"] != "acked" or not new[row["key"]]:
                yield Fault(
                    "announcements_lost", f"the announcement of {node.name} is {row['state']}"
                )
        token = plans.ending(node, _chain(plan, node)).token
        times = sum(token in r["text"] for r in evidence.receipts if r["is"] == "new")
        if times > 1:
            yield Fault(
                "announcements_twice",
                f"the channel took the announcement of {node.name} {times} times",
            )
        if not times:
            yield Fault(
                "announcements_lost", f"the channel never got the announcement of {node.name}"
            )
    tries = Counter(r["key"] for r in evidence.receipts)
    for row in evidence.outbox:
        if row["run"] not in expected and row not in questions:
            yield Fault("announcements_twice", f"nobody asked for the announcement of {row['run']}")
        if tries[row["key"]] > row.get("attempts", 0):
            yield Fault("broken", f"delivery {row['key']} was tried more often than is on record")
    for key in new.keys() - {row["key"] for row in evidence.outbox}:
        yield Fault("announcements_twice", f"the channel got {key}, which is not on record")


def _roots(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """A key makes one run, however often it is asked for, and every answer names that run."""
    roots = [record for record in evidence.runs.values() if not record.parent]
    if len(roots) != len(plan.roots):
        yield Fault("broken", f"{len(plan.roots)} roots were asked for, there are {len(roots)}")
    for line in evidence.lines("root"):
        if [line["run"]] != [record.id for record in evidence.by_name[line["name"]]]:
            yield Fault("broken", f"{line['name']} was promised as {line['run']}")


def _books(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """Nothing is held for runs that have ended."""
    for account in evidence.accounts:
        if any(account.get("held", ())):
            yield Fault("broken", f"account {account['id']} still holds {account['held']}")


def _log(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """The hash chain of each tree, worked out again."""
    heads: dict[str, tuple[int, bytes]] = {}
    for n, event in enumerate(evidence.events, 1):
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
    for record in evidence.runs.values():
        if not record.parent and record.id not in heads:
            yield Fault("broken", f"{record.name} has no log of its own")
    lives = [
        event.entry["event"]["epoch"]
        for event in evidence.events
        if event.entry["event"]["event"] == "Opened"
    ]
    if lives != sorted(set(lives)):
        yield Fault("broken", f"epochs do not grow: {lives}")


def _fold(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """The one question put to the core: does the log alone give the rows that are stored?"""
    trees = Trees(Limits())
    try:
        for event in evidence.events:
            trees.fold(read_entry(event.body))
    except Exception as error:
        yield Fault("broken", f"the log cannot be folded: {type(error).__name__}: {error}")
        return
    folded = trees.take_changes().runs
    for record in evidence.runs.values():
        stored = read_run(msgspec.json.encode(record.body))
        if folded.get(record.id) != stored:
            yield Fault(
                "broken",
                f"the fold of the log gives another {record.name}: {folded.get(record.id)} not "
                f"{stored}",
            )


def _artifacts(evidence: Evidence, plan: Plan) -> Iterator[Fault]:
    """A text that was cut is kept whole."""
    for call in evidence.calls.values():
        if call.tool != "long" or len(call.results) != 1:
            continue
        whole = _answer(call).encode()
        name = sha256(whole).hexdigest()
        file = evidence.folder / f"{LOG}.artifacts" / name[:2] / name
        if name not in call.results[0]["text"] or not file.exists() or file.read_bytes() != whole:
            yield Fault("lost", f"the whole text behind {call.key} is not there")
