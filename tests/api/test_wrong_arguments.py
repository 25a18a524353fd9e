"""Arguments of another type are refused by every public verb, in words, before anything is done."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from retinue import (
    Agent,
    Ask,
    ConfigError,
    Context,
    Delegation,
    PermissionQuestion,
    Provider,
    Refused,
    Retinue,
    TextQuestion,
    WrongThread,
    json_schema,
    run_sync,
    tool,
)
from retinue.core.messages import ToolMessage
from retinue.testing import Scripted, VirtualClock, call, fake_context, simulate
from retinue.tools.context_verbs import ContextVerbs
from tests.api.scripted_agents import agent, last, on_virtual_time

WORDS = (str, bool, int, float)


class Odd:
    """Nothing that any verb takes."""

    def __repr__(self) -> str:
        return "Odd()"


def verbs_of(kind: type) -> dict[str, Any]:
    """The public functions of a class that take a plain word or number."""
    result = {}
    for name, verb in inspect.getmembers(kind, inspect.isfunction):
        names = list(inspect.signature(verb).parameters)[1:]
        hints = {n: h for n, h in verb.__annotations__.items() if n in names}
        is_public = not name.startswith("_") and name != "follow"
        if is_public and {"str", "bool", "int"} & set(map(str, hints.values())):
            result[name] = hints
    return result


VERBS = [
    (kind, verb, parameter)
    for kind in (Retinue, ContextVerbs)
    for verb, hints in verbs_of(kind).items()
    for parameter, hint in hints.items()
    if hint in ("str", "bool", "int", "Seconds | None", "int | None", "Permissions")
]


def test_there_are_verbs_to_try() -> None:
    names = {f"{kind.__name__}.{verb}" for kind, verb, _ in VERBS}
    assert {"Retinue.decide", "Retinue.send", "Retinue.fork", "ContextVerbs.run"} <= names
    assert len(names) > 40


@pytest.mark.parametrize(("kind", "verb", "parameter"), VERBS)
@on_virtual_time
async def test_a_value_of_another_type_is_refused_by_name(
    kind: type, verb: str, parameter: str
) -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        owner: Any = retinue if kind is Retinue else fake_context()
        function, wrong = getattr(owner, verb), Odd()
        parameters = inspect.signature(function).parameters
        needed = {n: _fitting(p) for n, p in parameters.items() if _is_required(p)}
        is_list = parameters[parameter].kind is inspect.Parameter.VAR_POSITIONAL
        with pytest.raises(
            ConfigError, match=rf"^{verb}\(\): \w+ is .*, not Odd\(\)\.$"
        ) as failure:
            if is_list:
                out = function(*needed.values(), wrong)
            else:
                out = function(**{**needed, parameter: wrong})
            if inspect.isawaitable(out):
                await out
        assert failure.value.field in (parameter, parameter.removesuffix("s"))


def _is_required(p: inspect.Parameter) -> bool:
    return p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD


def _fitting(p: inspect.Parameter) -> Any:
    values = {"str": "x", "bool": True, "int": 1}
    one = Agent("one", model=Scripted(["x"]))
    return one if "Agent" in str(p.annotation) else values.get(str(p.annotation), "x")


@on_virtual_time
async def test_an_outcome_in_place_of_an_id_gets_the_words_that_help() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome: Any = await retinue.run(agent("one", ["x"]), "Go.")
        with pytest.raises(ConfigError) as failure:
            await retinue.wait(outcome)
        assert str(failure.value) == (
            "wait(): run is the id of a run, not an Outcome. Write run.id."
        )
        with pytest.raises(ConfigError, match=r"add_budget\(\) has no option 'usdd'.*'usd'"):
            await retinue.add_budget(outcome.id, usdd=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("allow", ["no", "false", 0, None, 1])
@on_virtual_time
async def test_only_true_permits_a_call(allow: Any) -> None:
    fired = []

    @tool(approve=True)
    def fire() -> str:
        """Fire."""
        fired.append(1)
        return "fired"

    one = agent("one", [call("fire"), "end"], tools=[fire])
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(one, "Go.", questions="ask")
        async for question in retinue.questions(run, live=True):
            assert isinstance(question, PermissionQuestion)
            with pytest.raises(ConfigError, match="allow is True or False"):
                await retinue.decide(question, allow)
            await retinue.decide(question, False)
    assert fired == []


@on_virtual_time
async def test_a_message_that_is_no_text_stops_no_run() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", ["x"], seconds=10), "Go.")
        wrong: Any = 5
        with pytest.raises(ConfigError, match=r"send\(\): text is a text, not 5\."):
            await retinue.send(run, wrong)
        assert (await retinue.wait(run)).text == "x"


@on_virtual_time
async def test_words_that_are_no_text_do_not_answer() -> None:
    @tool(restart="pure")
    async def choose(ctx: Context) -> str:
        """Choose."""
        return await ctx.ask("Which?", choices=["a", "b"])

    one = agent("one", lambda q: last(q) if q.turn else call("choose"), tools=[choose])
    wrong: Any = ["a"]
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(one, "Go.", questions="ask")
        async for question in retinue.questions(run, live=True):
            assert isinstance(question, TextQuestion)
            with pytest.raises(ConfigError, match="text is a text"):
                await retinue.answer(question, wrong)
            await retinue.answer(question, "a")
        assert (await retinue.wait(run)).text == "a"


worker = Agent("worker", model=Scripted(lambda q: f"did {q.messages[0].text}", name="w"))
other = Agent("other", model=Scripted(lambda q: f"saw {q.messages[0].text}", name="o"))


async def read_by_its_model(*tools: Any) -> str:
    """What a model reads of its call of the first of these tools."""
    lead = agent(
        "lead",
        lambda q: last(q) if q.turn else call(tools[0].name),
        tools=list(tools),
        staff=[worker, other],
    )
    async with Retinue(clock=VirtualClock()) as retinue:
        return (await retinue.run(lead, "Go.", timeout=60)).text


@on_virtual_time
async def test_a_question_without_words_is_refused_and_waits_for_nobody() -> None:
    @tool(restart="pure")
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await ctx.ask(" ")

    @tool(restart="pure", quick=True)
    def plainly() -> Ask:
        """Ask."""
        return Ask(question="")

    assert "ask() needs a question, not an empty text." in await read_by_its_model(ask)
    assert "Tool 'plainly' returned Ask without a question." in await read_by_its_model(plainly)


@on_virtual_time
async def test_a_key_names_one_child_of_a_call() -> None:
    @tool(restart="pure")
    async def twice(ctx: Context) -> str:
        """Ask twice."""
        first = await ctx.run(worker, "a", key="k")
        again = await ctx.run(worker, "a", key="k")
        assert again.id == first.id
        for child, task in ((worker, "b"), (other, "a")):
            with pytest.raises(Refused, match="already used in this call, for 'worker'") as failure:
                await ctx.run(child, task, key="k")
            assert failure.value.limit == "key"
        return again.text

    assert await read_by_its_model(twice) == "did a"


@on_virtual_time
async def test_a_step_of_a_call_that_has_ended_is_refused_in_words() -> None:
    late: list[asyncio.Task[Any]] = []

    @tool(restart="pure")
    async def hasty(ctx: Context) -> str:
        """Return at once."""

        async def later() -> None:
            await asyncio.sleep(5)
            await ctx.run(worker, "late")

        late.append(asyncio.create_task(later()))
        return "started"

    @tool(restart="pure")
    async def nap() -> str:
        """Sleep."""
        await asyncio.sleep(10)
        return "rested"

    lead = agent("lead", [call("hasty"), call("nap"), "end"], tools=[hasty, nap], staff=[worker])
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(lead, "Go.")
    assert str(late[0].exception()) == (
        "The call of tool 'hasty' has ended and takes no more steps. Await what the tool starts "
        "before it returns."
    )
    assert outcome.text == "end" and outcome.children == ()


def test_a_plain_function_that_runs_a_loop_of_its_own_is_told_where_steps_are_taken() -> None:
    @tool(restart="pure")
    def wrongly(ctx: Context) -> str:
        """Start a loop."""
        return asyncio.run(ctx.run(worker, "a")).text

    @tool(restart="pure")
    def rightly(ctx: Context) -> Delegation[str]:
        """Hand over."""
        return ctx.delegate(worker, "a")

    async def results(tool_: Any) -> str:
        lead = agent("lead", [call(tool_.name), "end"], tools=[tool_], staff=[worker])
        async with Retinue() as retinue:
            run = (await retinue.run(lead, "Go.", timeout=60)).id
            return next(m.text for m in await retinue.messages(run) if isinstance(m, ToolMessage))

    assert "WrongThread: A tool takes its steps on the event loop" in asyncio.run(results(wrongly))
    assert "did a" in asyncio.run(results(rightly))


def test_the_portal_is_given_a_verb_and_not_its_result() -> None:
    one = Agent("one", model=Scripted(["hello"]))

    async def main() -> None:
        async with Retinue() as retinue:
            portal: Any = retinue.portal()
            for wrong, words in (
                (lambda: portal.call(retinue.run(one, "Go.")), "calls the verb itself"),
                (lambda: portal.call(retinue.runs), "runs.. is an async iterator"),
                (lambda: portal.call(lambda: 5), "a function that is awaited"),
                (lambda: portal.call(5), "takes a function, not 5"),
            ):
                with pytest.raises(ConfigError, match=words):
                    await asyncio.to_thread(wrong)
            with pytest.raises(WrongThread):
                portal.call(retinue.run, one, "Go.")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threads": 0}, "threads is 1 or more"),
        ({"models": 5}, "models is "),
        ({"models": {"a": 5}}, "models is "),
        ({"channels": {"a": 5}}, "channels is a dict of str to Channel"),
        ({"telemetry": 5}, "telemetry is an? EventSink"),
        ({"clock": 5}, "clock is a Clock"),
        ({"providers": {"anthropic": Provider(max_parallel=0)}}, "max_parallel is 1 or more"),
        (
            {"providers": {"house": Provider(base_url="http://x", dialect="chat")}},  # type: ignore[arg-type]
            "Provider 'house': .*chat",
        ),
    ],
)
def test_a_part_of_a_runtime_that_is_none_is_refused_when_it_is_made(
    options: Any, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        Retinue(**options)


@pytest.mark.parametrize("output", [5, "Report", Odd(), lambda: 5])
def test_an_output_that_is_no_type_is_refused(output: Any) -> None:
    with pytest.raises(ConfigError, match="output is a type, such as Report, not"):
        Agent("a", output=output)


@on_virtual_time
async def test_a_schema_that_is_none_is_refused_when_its_agent_is_first_used() -> None:
    schema = json_schema({"type": "objekt"})
    async with Retinue(clock=VirtualClock()) as retinue:
        with pytest.raises(ConfigError, match=r"a valid JSON schema\. \$\.type: 'objekt'"):
            await retinue.run(Agent("a", model=Scripted(["x"]), output=schema), "Go.")


def test_a_model_that_is_a_class_and_an_agent_that_is_a_name_are_refused() -> None:
    wrong: Any = Scripted
    with pytest.raises(ConfigError, match="model is a name such as"):
        Agent("a", model=wrong)
    name: Any = "a"
    with pytest.raises(ConfigError, match=r"run_sync\(\): agent is an Agent, not 'a'"):
        run_sync(name, "Go.")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("hello", r"A script is a list .* Write \['hello'\]\."),
        (5, "A script is a list"),
        ([5], "Line 1 of the script: A line is a text"),
        (["a", []], "Line 2 of the script"),
    ],
)
def test_a_script_that_is_none_is_refused_when_it_is_made(script: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Scripted(script)


@pytest.mark.parametrize("options", [{"delay": -1}, {"delay": "3"}, {"usage": 5}, {"info": "m"}])
def test_options_of_a_scripted_model_are_checked(options: Any) -> None:
    with pytest.raises(ConfigError, match=rf"Scripted\(\): {next(iter(options))} is a"):
        Scripted(["x"], **options)


@pytest.mark.parametrize(
    "options",
    [{"crashes": "every"}, {"seeds": 0}, {"seeds": "3"}, {"runtime": {"modles": {}}}],
)
def test_a_simulation_that_would_prove_nothing_is_refused(options: Any) -> None:
    async def scenario(retinue: Retinue) -> None:
        raise AssertionError("it was played")

    with pytest.raises(ConfigError, match=r"simulate\(\)"):
        simulate(scenario, **options)


@pytest.mark.parametrize("value", [{"results": {"a": "text"}}, {"answers": "yes"}, {"meta": 5}])
def test_what_a_fake_context_is_given_is_checked(value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"fake_context\(\): {next(iter(value))} is "):
        fake_context(**value)


def plain(x: int) -> str:
    """Plain."""
    return str(x)


async def asked(call: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"approve": "no"}, "approve is True or False or a function, not 'no'"),
        ({"approve": 1}, "approve is True or False or a function, not 1"),
        ({"approve": asked}, "approve= takes a plain function"),
        ({"quick": "no"}, "quick is True or False"),
        ({"name": 5}, "name is a text"),
        ({"subject": 5}, "subject is a text"),
        ({"description": 5}, "description is a text"),
    ],
)
def test_options_of_a_tool_are_of_their_types(options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        tool(plain, **options)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (5, r"tool\(\) takes a function, not 5"),
        ("price", r"Write @tool\(name='price'\)"),
        (tool(plain), "'plain' is a tool already"),
    ],
)
def test_what_is_no_function_is_not_made_a_tool(function: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        tool(function)


def test_a_tool_has_one_context() -> None:
    def two(a: Context, b: Context) -> str:
        return ""

    with pytest.raises(ConfigError, match="parameters 'a' and 'b' are both a Context"):
        tool(two)


@on_virtual_time
async def test_an_approval_that_fails_asks_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @tool(approve=lambda call: call.arguments["gone"] > 3)
    def fire() -> str:
        """Fire."""
        return "fired"

    one = agent("one", lambda q: last(q) if q.turn else call("fire"), tools=[fire])
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(one, "Go.", questions="ask")
        async for question in retinue.questions(run, live=True):
            await retinue.decide(question.id, True)
        assert (await retinue.wait(run)).text == "fired"
    assert "approve= of fire failed, so a person is asked" in caplog.text
