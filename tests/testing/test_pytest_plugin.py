"""The pytest plugin, in test suites of its users: fixtures, the marker, the option, and what fails
a test."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.testing.fake_llm.background import served
from retinue.testing.fake_llm.fake_provider import FakeLLM

pytest_plugins = ["pytester"]

HEAD = """
import asyncio
import pytest
from retinue import Agent, Retinue, tool
from retinue.testing import Cassette, MemoryStore, Scripted, call
from retinue.testing.fake_llm import FakeLLM

named = Agent("named", "Help.", model="anthropic:claude-opus-4-8")
"""
Suite = Callable[..., pytest.RunResult]


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Runs a test file of a user in a process of its own, where only our plugin is loaded."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    source = Path(__file__).resolve().parents[2] / "src"
    monkeypatch.setenv("PYTHONPATH", str(source), prepend=os.pathsep)

    def run(text: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_theirs=HEAD + text)
        own = ("-p", "retinue.testing.pytest_plugin", "--strict-markers", "-W", "error")
        return pytester.runpytest_subprocess(*own, *options, timeout=60)

    return run


def test_a_model_that_is_given_by_name_is_scripted_and_the_runtime_is_closed(suite: Suite) -> None:
    result = suite("""
kept = []

@pytest.fixture
def retinue_options():
    return {"models": {"anthropic:claude-opus-4-8": Scripted(["Hello."])}}

async def test_answers(retinue: Retinue) -> None:
    assert type(retinue._engine.store) is MemoryStore
    retinue._engine.store.close = closing(retinue._engine.store.close)
    assert (await retinue.run(named, "Hi.")).text == "Hello."
    assert kept == []

def closing(close):
    async def closed():
        kept.append("closed")
        await close()
    return closed

async def test_was_closed() -> None:
    assert kept == ["closed"]

class TestInAClass:
    async def test_has_its_own(self, retinue: Retinue) -> None:
        assert (await retinue.run(named, "Hi.")).ok
""")
    assert result.parseoutcomes() == {"passed": 3}


def test_hours_take_no_time_on_virtual_time(suite: Suite) -> None:
    result = suite("""
@tool
async def nap(hours: int) -> str:
    "Sleep."
    await asyncio.sleep(3_600 * hours)
    return "slept"

lazy = Agent("lazy", model=Scripted([call("nap", hours=9), "Awake."]), tools=[nap])

@pytest.mark.virtual_time
async def test_sleeps(retinue: Retinue) -> None:
    outcome = await retinue.run(lazy, "Good night.")
    assert outcome.text == "Awake."
    assert outcome.ended_ms - outcome.created_ms == 9 * 3_600_000

@pytest.mark.virtual_time
@pytest.mark.parametrize("timeout", [60, 120])
async def test_is_late(retinue: Retinue, timeout: int) -> None:
    assert (await retinue.run(lazy, "Good night.", timeout=timeout)).state == "timed_out"
""")
    assert result.parseoutcomes() == {"passed": 3}
    assert result.duration < 60


def test_an_assertion_inside_a_script_fails_the_test_and_not_only_the_run(suite: Suite) -> None:
    result = suite("""
def say(request):
    assert "please" in request.messages[0].text, "nobody was polite"
    return "Fine."

async def say_later(request):
    return say(request)

@pytest.mark.parametrize("script", [say, say_later])
@pytest.mark.parametrize("task", ["now", "please"])
async def test_is_polite(retinue: Retinue, script, task) -> None:
    await retinue.run(Agent("polite", model=Scripted(script)), task)

def test_is_polite_without_the_fixture() -> None:
    async def main():
        async with Retinue() as retinue:
            await retinue.run(Agent("polite", model=Scripted(say)), "now")
    asyncio.run(main())

async def test_shows_why(retinue: Retinue) -> None:
    assert (await retinue.run(Agent("polite", model=Scripted(say)), "now")).text == "Fine."
""")
    assert result.parseoutcomes() == {"passed": 2, "failed": 4}
    assert result.outlines.count("E       AssertionError: nobody was polite") == 4


def test_what_cannot_work_says_what_to_do(suite: Suite) -> None:
    result = suite("""
def test_plain(retinue: Retinue) -> None: ...

@pytest.mark.virtual_time
def test_plain_and_virtual() -> None: ...

@pytest.mark.virtual_time
async def test_virtual_provider(fake_llm: FakeLLM) -> None: ...

async def test_no_recording(cassette: Cassette) -> None: ...
""")
    assert result.parseoutcomes() == {"failed": 1, "errors": 3}
    result.stdout.fnmatch_lines_random(
        [
            "*fixture `retinue` needs a test that is written `async def`*",
            "*marker `virtual_time` is for `async def` tests*run_virtual*",
            "*`fake_llm` is reached over a real connection*",
            "cassettes/test_theirs/test_no_recording.jsonl has not been recorded*--record*",
        ]
    )


RECORDED = """
async def test_greets(cassette: Cassette) -> None:
    async with Retinue(**cassette.options) as retinue:
        outcome = await retinue.run(named, "{task}")
        assert outcome.text == "Hello from afar.", outcome.error
"""


def test_a_cassette_is_recorded_once_and_played_without_a_key(
    suite: Suite, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = RECORDED.format(task="Greet me.")
    with served(FakeLLM(["Hello from afar."])) as llm:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", llm.url)
        assert suite(text, "--record").parseoutcomes() == {"passed": 1}
        assert llm.n_requests == 1
    tape = pytester.path / "cassettes" / "test_theirs" / "test_greets.jsonl"
    assert "Hello from afar." in tape.read_text()
    assert "sk-ant-secret" not in tape.read_text()
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert suite(text).parseoutcomes() == {"passed": 1}

    other = suite(RECORDED.format(task="Insult me."))
    assert other.ret == 1
    other.stdout.fnmatch_lines(["*differs in message 1 of 1*"])
    unused = suite("async def test_greets(cassette: Cassette) -> None:\n    cassette.options\n")
    unused.stdout.fnmatch_lines(["*1 recorded answers were not used*"])
    model = 'Agent("named", model="openai:gpt-5")'
    third = suite(text.replace("run(named", f"run({model}"))
    third.stdout.fnmatch_lines(["*model 'openai:gpt-5' was not recorded*claude-opus-4-8*"])


def test_the_fake_provider_serves_plain_and_async_tests(suite: Suite) -> None:
    result = suite("""
import retinue as library

@pytest.fixture
def retinue_options(fake_llm: FakeLLM):
    return fake_llm.providers

models = ["anthropic:claude-opus-4-8", "openai:gpt-5", "gemini:gemini-3-pro"]

@pytest.mark.parametrize("model", models)
async def test_over_http(retinue: Retinue, fake_llm: FakeLLM, model: str) -> None:
    fake_llm.script = [f"I am {model}."]
    outcome = await retinue.run(Agent("a", model=model), "Who are you?")
    assert outcome.text == f"I am {model}.", outcome.error
    assert fake_llm.n_requests == 1 and not fake_llm.violations

def test_plain(fake_llm: FakeLLM) -> None:
    assert library.run_sync(named, "Hi.", runtime=fake_llm.providers).text == "Done."

def test_a_mistake_in_the_script_is_shown(fake_llm: FakeLLM) -> None:
    fake_llm.script = lambda request: request.no_such_thing
    outcome = library.run_sync(named, "Hi.", runtime=fake_llm.providers)
    assert fake_llm.n_requests == 1, "nobody tries again"
    assert "no_such_thing" in outcome.error
""")
    assert result.parseoutcomes() == {"passed": 5, "errors": 1}
    result.stdout.fnmatch_lines(["*AttributeError*no_such_thing*"])


OTHERS = """
@pytest.mark.virtual_time
async def test_ours(retinue: Retinue) -> None:
    await asyncio.sleep(36_000)
    assert (await retinue.run(Agent("a", model=Scripted(["Yes."])), "Hi.")).text == "Yes."

{mark}
async def test_theirs(retinue: Retinue, request) -> None:
    await asyncio.sleep(0)
    assert (await retinue.run(Agent("a", model=Scripted(["Yes."])), "Hi.")).text == "Yes."
    {check}

async def test_no_ones() -> None:
    await asyncio.sleep(0)
"""


def test_anyio_runs_the_tests_that_are_marked_for_it(suite: Suite) -> None:
    pytest.importorskip("anyio")
    check = "assert request.getfixturevalue('anyio_backend_name') == 'asyncio'"
    text = "\n@pytest.fixture\ndef anyio_backend(): return 'asyncio'\n" + OTHERS.format(
        mark="@pytest.mark.anyio", check=check
    )
    assert suite(text, "-p", "anyio").parseoutcomes() == {"passed": 3}
    both = text.replace(
        "@pytest.mark.virtual_time", "@pytest.mark.anyio\n@pytest.mark.virtual_time"
    )
    assert suite(both, "-p", "anyio").parseoutcomes() == {"passed": 3}


WRAPPER = """
import asyncio, functools, inspect
import pytest

class Wrapped(pytest.Function):
    def runtest(self):
        test = self.obj

        @functools.wraps(test)
        def plain(*args, **fixtures):
            with asyncio.Runner() as runner:
                runner.get_loop().is_theirs = True
                runner.run(test(*args, **fixtures))

        self.obj = plain
        super().runtest()

@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector, name, obj):
    found = yield
    for item in found if isinstance(found, list) else []:
        if inspect.iscoroutinefunction(obj):
            item.__class__ = Wrapped
    return found
"""


def test_a_plugin_that_wraps_every_coroutine_keeps_its_loop_except_on_virtual_time(
    suite: Suite, pytester: pytest.Pytester
) -> None:
    """As pytest-asyncio does in its mode `auto`."""
    pytester.makeconftest(WRAPPER)
    check = "assert asyncio.get_running_loop().is_theirs"
    assert suite(OTHERS.format(mark="", check=check)).parseoutcomes() == {"passed": 3}


def test_pytest_asyncio_and_the_plugin_get_along(suite: Suite) -> None:
    text = OTHERS.format(mark="@pytest.mark.asyncio", check="")
    scope = ("-o", "asyncio_default_fixture_loop_scope=function")
    for mode in ("strict", "auto"):
        theirs = ("-p", "pytest_asyncio.plugin", "-o", f"asyncio_mode={mode}", *scope)
        assert suite(text, *theirs).parseoutcomes() == {"passed": 3}


def test_retinue_itself_does_not_import_pytest(suite: Suite, pytester: pytest.Pytester) -> None:
    result = pytester.run(
        sys.executable,
        "-c",
        "import sys, retinue, retinue.testing; assert 'pytest' not in sys.modules",
    )
    assert result.ret == 0


def test_the_program_that_type_checkers_accept_passes(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path(__file__).resolve().parents[2] / "examples" / "programs" / "own_agents.py"
    with served(FakeLLM(["All is well."])) as llm:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{llm.url}/v1")
        assert suite(program.read_text(), "--record").parseoutcomes() == {"passed": 3}
    monkeypatch.delenv("OPENAI_API_KEY")
    assert suite(program.read_text()).parseoutcomes() == {"passed": 3}
