"""Every fault of the catalogue, for a lead and for its helper, in their first call and a later one,
in every dialect.

`make faults` runs them all over real sockets and prints one line of JSON; the tests run a sample of
the same cases."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import logging
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from retinue import Actions, Agent, Context, Outcome, Retinue, tool
from retinue.core.messages import AssistantMessage, Message, ToolMessage
from retinue.core.spec import Retry
from retinue.core.state import Thinking
from retinue.core.values import ModelInfo
from retinue.errors import ModelError
from retinue.models.governed_call import GovernedCall
from retinue.models.governor import Governor
from retinue.models.http import ConnectionPool, HttpModel
from retinue.models.kept_connections import Pool
from retinue.models.new_connections import Dialer
from retinue.models.watchdog import Watchdog
from retinue.testing import call
from retinue.testing.fake_llm.fake_provider import FAULTS, FakeLLM, ParsedRequest
from tests.models.http_world import (
    DIALECTS,
    FAST,
    KEY,
    QUICK,
    answering,
    at_rest,
    closed_port,
    http_model,
    url_of,
)
from tests.waiting import until

ROLES = ("lead", "helper")
WHEN = ("first", "later")
SUMMARIZE = "Summarize this conversation so that"
BASELINE = 7
"""So many requests the story takes when nothing goes wrong: four of the lead, three of its
helper."""
NO_SERVER = {"F17": "R", "F17b": "R", "F17c": "T"}
"""Nobody listens, nobody knows the name, or the connection is not safe."""
CONNECTION = {
    ("lead", "first"): 1,
    ("lead", "later"): 3,
    ("helper", "first"): 4,
    ("helper", "later"): 6,
}
STOPS = {
    "F11": "not_found",
    "F12": "context_exhausted",
    "F13": "context_exhausted",
    "F16": "bad_schema",
    "F17": "tls",
    "F30": "response_too_large",
    "F31": "response_too_large",
    "F35": "redirect",
    "F36": "bad_response",
    "F40": "refused",
}
EXTRA = {"F22": (0, 1), "F38": (1, 2)}
"""How many more requests another try takes, where it is not one: what drips may come to its end."""
PATIENT = replace(FAST, content=120.0, attempt=120.0)
LONG = ("F26", "F30", "F31", "F50b")
"""What takes a while to be read; on a busy machine, longer than others may be silent."""
"""What comes in one byte at a time is in order, however long a busy machine takes for it."""
CROWDED = ("F53", "F54")
"""What needs many runs at once to show."""
CROWD = 40
RETRY = Retry(attempts=6, base_ms=10, cap_ms=80)
STUCK = 25.0


@dataclass(frozen=True)
class Case:
    fault: str
    dialect: str
    role: str
    when: str
    stream: bool = True

    def __str__(self) -> str:
        return (
            f"{self.fault} {self.dialect} {self.role} {self.when}{'' if self.stream else ' whole'}"
        )

    @property
    def outcome(self) -> str:
        if self.fault in NO_SERVER:
            return NO_SERVER[self.fault]
        return FAULTS[self.fault].outcome_in(self.dialect)  # type: ignore[arg-type]


def cases() -> Iterator[Case]:
    """All of them as streams; those of the lead's later call also as whole bodies."""
    for name, fault in FAULTS.items():
        if name not in CROWDED:
            for dialect, role, when in itertools.product(fault.dialects, ROLES, WHEN):
                yield Case(name, dialect, role, when)
            for dialect in fault.dialects:
                yield Case(name, dialect, "lead", "later", stream=False)
    for name, speaks in itertools.product(CROWDED, DIALECTS):
        yield Case(name, speaks, "crowd", "always")
    for name, speaks, role, when in itertools.product(NO_SERVER, DIALECTS, ROLES, WHEN):
        if name != "F17c" or when == "first":
            yield Case(name, speaks, role, when)


@dataclass
class Story:
    """A lead reads two files, hires a helper who reads two more, and says what it was told. What it
    says next depends on what it knows, so it recovers from whatever was lost."""

    case: Case
    faulty: int = 0
    at: list[float] = field(default_factory=list)
    done: list[tuple[str, str]] = field(default_factory=list)
    parked: set[str] = field(default_factory=set)
    pages: int = 0
    always: bool = False

    def script(self, request: ParsedRequest) -> Any:
        prompt_text = "\n".join(
            m.text for m in request.messages if not isinstance(m, AssistantMessage)
        )
        if request.messages[-1].text.startswith(SUMMARIZE):
            return "Known: " + " ".join(
                f"contents of {f}.txt" for f in "abcd" if f"contents of {f}.txt" in prompt_text
            )
        role = role_of(request)
        for name in "ab" if role == "lead" else "cd":
            if f"contents of {name}.txt" not in prompt_text:
                return call("read", path=f"{name}.txt")
        if role == "helper":
            return "Helper is done."
        hired = {
            c.id
            for m in request.messages
            if isinstance(m, AssistantMessage)
            for c in m.calls
            if c.name == "hire"
        }
        texts = [
            m.text for m in request.messages if isinstance(m, ToolMessage) and m.call_id in hired
        ]
        news = [
            text
            for text in texts
            if not text.startswith(("Not run", "Invalid", "Error: Not", "Error: Inv"))
        ]
        return f"Lead is done: {news[0][:400]}" if news else call("hire", task="Read c and d.")

    def faults(self, request: ParsedRequest, n: int) -> str | None:
        self.at.append(asyncio.get_running_loop().time())
        self.pages += b"<html" in request.raw or b"cloudflare" in request.raw
        if role_of(request) != self.case.role or (self.faulty and not self.always):
            return None
        if self.faulty:
            return self.case.fault
        n_results = sum(m.text.startswith("contents of") for m in request.messages)
        if n_results < (0 if self.case.when == "first" else 2):
            return None
        self.faulty = n
        return self.case.fault

    def agents(self, model: HttpModel, other: HttpModel | None = None) -> Agent:
        def reader(role: str) -> Any:
            @tool(name="read", restart="unsafe")
            async def read(path: str, options: dict[str, Any] | None = None) -> str:
                """Reads a file."""
                self.done.append((role, path))
                return f"contents of {path}"

            return read

        helper = Agent(
            "helper", "You are the helper.", model=other or model, tools=[reader("helper")]
        )

        @tool(restart="keyed")
        async def hire(context: Context, task: str) -> Actions:
            """Hires the helper for a task."""
            self.done.append(("lead", task))
            return context.spawn_actions(helper, task, retry=RETRY)

        return Agent(
            "lead", "You are the lead.", model=model, tools=[reader("lead"), hire], staff=[helper]
        )


def role_of(request: ParsedRequest) -> str:
    return "lead" if "the lead" in request.system else "helper"


@dataclass
class Told:
    """What came of a case."""

    root: Outcome
    helpers: list[Outcome]
    messages: list[Message]
    seconds: float

    def of(self, role: str) -> Outcome:
        return self.root if role == "lead" or not self.helpers else self.helpers[0]


class Noting(Governor):
    """A governor that keeps what went wrong, for whoever has to find out why."""

    errors: list[str]

    def _failed(self, turn: GovernedCall, error: ModelError) -> None:
        self.errors = [
            *getattr(self, "errors", ()),
            f"{error.kind} after {self.seconds() - turn.at:.2f} s: {error}",
        ]
        super()._failed(turn, error)


class Lost(ConnectionPool):
    """A client one of whose connections goes to a port where nobody is, or to a name that nobody
    knows."""

    case: Case
    story: Story

    def pool(self) -> tuple[Pool, Watchdog]:
        pool, watchdog = super().pool()
        pool.idle_seconds = 0.0
        return pool, watchdog

    def _dialer(self) -> Dialer:
        pool, n = self, itertools.count(1)

        class Lossy(Dialer):
            async def resolve(self, host: str, port: int) -> list[Any]:
                if next(n) == CONNECTION[pool.case.role, pool.case.when]:
                    pool.story.faulty = pool.story.faulty or 1
                    if pool.case.fault == "F17b":
                        raise OSError(None, "Name or service not known")
                    port = closed_port()
                return [(socket.AF_INET, ("127.0.0.1", port))]

        return Lossy(self.times.connect, self._trust)


async def play(case: Case, *, always: bool = False) -> list[str]:
    """Play a case; what was not as it should be."""
    if case.role == "crowd":
        return await play_crowd(case)
    story = Story(case, always=always)
    llm = FakeLLM(story.script, faults=story.faults, settings=QUICK, chunks=5)
    async with llm, answering(b"220 this is no TLS\r\n", listen=False) as (unsafe, _):
        governor = Noting(probe_seconds=0.1, spent_seconds=0.15)
        client, url, other = (
            ConnectionPool(PATIENT if case.fault in LONG else FAST),
            url_of(llm, case.dialect),
            None,
        )
        if case.fault in NO_SERVER:
            client = Lost(FAST)
            client.case, client.story = case, story
            url = url.replace("127.0.0.1", "provider.test")
        options: dict[str, Any] = {"client": client, "stream": case.stream, "governor": governor}
        model = http_model(url, case.dialect, **options)
        if case.fault == "F17c":
            story.faulty = 1
            unsafe = unsafe.replace("http:", "https:")
            other = http_model(unsafe, case.dialect, info=ModelInfo(name="unsafe"), **options)
        lead = (
            story.agents(model, other)
            if case.role == "helper"
            else story.agents(other or model, model)
        )
        try:
            text = await tell(story, lead)
            with contextlib.suppress(TimeoutError):
                await until(lambda: llm.open == 0, 2.0)
            result = list(complaints(case, story, text, llm, governor))
            return result and [
                *result,
                *(f"there was {words[:200]}" for words in getattr(governor, "errors", ())),
            ]
        except TimeoutError:
            return ["stuck"]
        finally:
            await client.close()


async def play_crowd(case: Case, n: int = CROWD) -> list[str]:
    """Many runs of three calls each, while the provider is down or flaps: all of them end, and not
    by force."""
    story, settings = (
        Story(Case("F1", case.dialect, "nobody", "never")),
        replace(QUICK, outage_seconds=0.7),
    )
    settings = replace(settings, retry_after_seconds=0.02)
    llm = FakeLLM(story.script, faults=lambda request, n: case.fault, settings=settings)
    client, governor = ConnectionPool(FAST), Governor(probe_seconds=0.1)
    async with llm, Retinue() as retinue:
        model = http_model(
            url_of(llm, case.dialect), case.dialect, client=client, governor=governor
        )
        (helper,) = story.agents(model).staff
        try:
            async with asyncio.timeout(STUCK):
                ends = await asyncio.gather(
                    *(retinue.run(helper, f"Task {i}.", retry=RETRY) for i in range(n))
                )
        except TimeoutError:
            return ["stuck"]
        finally:
            await client.close()
        lines = [f"violation: {violation.message}" for violation in llm.violations]
        lines += [f"ended {end.state} ({end.stop}): {end.error}" for end in ends if not end.ok]
        if not at_rest(governor):
            lines.append("something is left")
        most = 3 * 3 * n if case.fault == "F54" else 3 * n + 100
        if llm.n_requests > most or not llm.injected:
            lines.append(
                f"{llm.n_requests} requests for {3 * n} replies, {len(llm.injected)} of them failed"
            )
        if len(story.done) != 2 * n:
            lines.append(f"{len(story.done)} calls were executed, not {2 * n}")
        return lines


async def tell(story: Story, lead: Agent) -> Told:
    async with Retinue() as retinue:
        began = time.monotonic()
        watching = asyncio.create_task(_watch(retinue, story))
        try:
            async with asyncio.timeout(STUCK):
                root = await retinue.run(lead, "Do it.", retry=RETRY)
            helpers = [(await retinue.wait(c.id)) for c in root.children]
            messages = [
                m
                for id in (root.id, *(c.id for c in root.children))
                for m in await retinue.messages(id)
            ]
        finally:
            watching.cancel()
        return Told(root, [h for h in helpers if h is not None], messages, time.monotonic() - began)


async def _watch(retinue: Retinue, story: Story) -> None:
    """Look for runs that say what they wait for. Those that wait for a key are told that there is
    another."""
    while True:
        for _, run in list(retinue._engine.trees.live()):
            if isinstance(run.state, Thinking) and run.state.waits_for:
                story.parked.add(run.state.waits_for)
                if run.state.waits_kind == "auth":
                    await retinue.retry()
        await asyncio.sleep(0.01)


def complaints(
    case: Case, story: Story, text: Told, llm: FakeLLM, governor: Governor
) -> Iterator[str]:
    if not story.faulty:
        yield "the fault was never met"
    for violation in llm.violations:
        yield f"violation: {violation.message}"
    if story.pages:
        yield "a proxy's page was put into a prompt"
    if not at_rest(governor) or llm.open:
        yield (
            f"something is left: {governor.in_flight} in flight, {governor.waiting} waiting, "
            f"{llm.open} open"
        )
    record = repr((text.root, text.helpers, text.messages))
    if KEY in record:
        yield "the key was told"
    yield from _executed(case, story)
    yield from _ended(case, story, text, llm)


def _executed(case: Case, story: Story) -> Iterator[str]:
    """Nothing half-received, nothing twice."""
    calls = {
        ("lead", "a.txt"),
        ("lead", "b.txt"),
        ("helper", "c.txt"),
        ("helper", "d.txt"),
        ("lead", "Read c and d."),
    }
    calls.add((case.role, "a.txt"))  # a call that a fault forges
    for one, n in Counter(story.done).items():
        if one not in calls:
            yield f"executed what was never said: {one}"
        # What was left out of a conversation that was too long is not known any more, and may be
        # read again.
        usual = 2 if case.outcome == "S" else 1
        if n > (64 if case.fault == "F46" else usual):
            yield f"executed {n} times: {one}"


def _ended(case: Case, story: Story, record: Told, llm: FakeLLM) -> Iterator[str]:
    one, root = record.of(case.role), record.root
    extra = llm.n_requests - BASELINE
    if case.role == "helper" and root.state != "completed":
        yield f"the lead of a helper with a fault ended {root.state} ({root.stop}): {root.error}"
    match case.outcome:
        case "T" if case.fault == "F30" and not case.stream:
            if one.state != "completed":  # a body may be longer than an event
                yield f"ended {one.state} ({one.stop}): {one.error}"
        case "T":
            yield from _fails(case, record, STOPS[case.fault.rstrip("bcd")])
        case "S" if case.when == "first":
            # There is nothing yet that could be left out.
            yield from _fails(case, record, "context_exhausted")
        case _ if one.state != "completed":
            yield f"ended {one.state} ({one.stop}): {one.error}"
    match case.outcome:
        case "R" if case.fault in NO_SERVER:
            if extra:
                yield f"{extra} more requests than without the fault"
        case "M" if not any(
            (isinstance(m, ToolMessage) and m.error) or getattr(m, "kind", "") == "nudge"
            for m in record.messages
        ):
            if case.fault != "F32":
                yield "the model was not told"
        case "S" if case.when == "later" and not any(
            getattr(m, "kind", "") == "summary" for m in record.messages
        ):
            yield "nothing was shortened"
        case "R" | "P" if extra not in EXTRA.get(case.fault, (1,)):
            yield f"{extra} more requests than without the fault"
        case "OK" if case.fault not in ("F42", "F42b") and extra > 0:
            yield f"{extra} more requests for what is in order"
    kind = "auth" if case.fault.startswith("F10") else "quota"
    if case.outcome == "P" and not any(why.startswith(kind) for why in story.parked):
        yield f"it did not say what it waited for: {story.parked}"
    if case.fault == "F1":
        after = [at for at in story.at if at > story.at[story.faulty - 1]]
        if min(after) - story.at[story.faulty - 1] < (QUICK.retry_after_seconds or 0.0) - 0.02:
            yield "it did not wait as long as it was asked to"
    if (
        case.fault == "F51"
        and (case.role, case.when) == ("helper", "later")
        and one.model_used != "another-model"
    ):
        yield f"the model was recorded as {one.model_used}"


def _fails(case: Case, record: Told, stop: str) -> Iterator[str]:
    one = record.of(case.role)
    if (one.state, one.stop) != ("failed", stop):
        yield f"ended {one.state} ({one.stop}), not failed ({stop}): {one.error}"
    if (
        case.role == "helper"
        and one.stop not in record.root.text
        and "failed" not in record.root.text.lower()
    ):
        yield f"the lead was not told: {record.root.text}"
    if stop == "bad_schema" and "read" not in one.error:
        yield f"the error does not name the tool: {one.error}"
    if record.seconds > 5.0:
        yield f"it took {record.seconds:.1f} s"


async def play_all(cases: list[Case], at_once: int = 6) -> AsyncIterator[tuple[Case, list[str]]]:
    """Play cases side by side; each has a provider of its own."""
    slots = asyncio.Semaphore(at_once)

    async def one(case: Case) -> tuple[Case, list[str]]:
        async with slots:
            try:
                return case, await play(case)
            except Exception as error:
                return case, [f"raised {type(error).__name__}: {error}"]

    for result in asyncio.as_completed([one(case) for case in cases]):
        yield await result


async def _main(cases: list[Case]) -> int:
    began, n = time.monotonic(), 0
    bad, stuck, violations = 0, 0, 0
    async for case, record in play_all(cases):
        n += 1
        bad += bool(record)
        stuck += "stuck" in record
        violations += sum(words.startswith("violation") for words in record)
        for words in record:
            sys.stderr.write(f"\r{case}: {words}\n")
        if n % 20 == 0 or n == len(cases):
            sys.stderr.write(
                f"\r{n} of {len(cases)} cases, {bad} bad, {time.monotonic() - began:.0f} s"
            )
            sys.stderr.flush()
    sys.stderr.write("\n")
    report = {"cases": n, "bad": bad, "violations": violations, "stuck": stuck, "ok": not bad}
    sys.stdout.write(json.dumps({**report, "seconds": round(time.monotonic() - began, 1)}) + "\n")
    return 1 if bad else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="faults", description="Every fault of a provider, in every dialect."
    )
    parser.add_argument("--only", default="", help="faults, separated by commas")
    parser.add_argument("--dialect", default="")
    options = parser.parse_args(argv)
    logging.disable(logging.ERROR)  # what goes wrong here is meant to
    names = options.only.split(",") if options.only else [*FAULTS, *NO_SERVER]
    choice = [c for c in cases() if c.fault in names and options.dialect in ("", c.dialect)]
    return asyncio.run(_main(choice))


if __name__ == "__main__":
    sys.exit(main())
