"""The pytest plugin: a runtime, a cassette and a fake provider as fixtures, and tests on virtual
time.

pytest loads it by its entry point; nothing else imports it. A runtime is opened inside the
coroutine of the test, so it is on the test's own loop, also when another plugin runs that loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, cast

import pytest

from retinue.api import Retinue
from retinue.models import scripted
from retinue.option_types import RetinueOptions
from retinue.testing.cassette import Cassette
from retinue.testing.fake_llm.background import served
from retinue.testing.fake_llm.fake_provider import FakeLLM
from retinue.testing.virtual_clock import VirtualClock, run_virtual

Test = Callable[..., Coroutine[Any, Any, None]]
VIRTUAL = "virtual_time"
OPENED = pytest.StashKey[list[Retinue[Any]]]()
"""The runtimes that a test opens when it begins."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("retinue").addoption(
        "--record",
        action="store_true",
        help="The fixture `cassette` asks the real models and writes down what they say.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{VIRTUAL}: the test's coroutine runs on virtual time, where hours take no time"
    )


@pytest.fixture
def retinue_options() -> RetinueOptions:
    """What the fixture `retinue` is made with. Override it in a module or a conftest.py."""
    return {}


@pytest.fixture
def retinue(request: pytest.FixtureRequest, retinue_options: RetinueOptions) -> Retinue[Any]:
    """A runtime on memory: open while the test's coroutine runs, closed after it."""
    _needs_coroutine(request, "The fixture `retinue`")
    options = retinue_options
    if request.node.get_closest_marker(VIRTUAL):
        options = cast(RetinueOptions, {"clock": VirtualClock(), **options})
    runtime: Retinue[Any] = Retinue(**options)
    request.node.stash.setdefault(OPENED, []).append(runtime)
    return runtime


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Iterator[Cassette]:
    """The recording of this test, in `cassettes/` beside its file. With `--record` it is made anew;
    else it is played, and at the end each of its answers must have been used."""
    name = re.sub(r"[^\w.-]+", "_", request.node.name).strip("_")
    path = request.path.parent / "cassettes" / request.path.stem / f"{name}.jsonl"
    is_recorded = bool(request.config.getoption("--record"))
    if is_recorded:
        path.parent.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        pytest.fail(
            f"{path.relative_to(request.path.parent)} has not been recorded. "
            "Run this test once with `pytest --record`, with a key for its models.",
            pytrace=False,
        )
    tape = Cassette(path, record=is_recorded)
    yield tape
    if not is_recorded:
        tape.check()


@pytest.fixture
def fake_llm(request: pytest.FixtureRequest) -> Iterator[FakeLLM]:
    """A provider on loopback that says "Done."; set `fake_llm.script` to have it say other
    things."""
    if request.node.get_closest_marker(VIRTUAL):
        pytest.fail(
            "The fixture `fake_llm` is reached over a real connection, which takes real time. "
            f"Remove the marker `{VIRTUAL}`, or use a Scripted model.",
            pytrace=False,
        )
    with served(FakeLLM()) as llm:
        yield llm
    llm.check()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Opens for the test what it uses, and fails it when an assertion in a script has failed."""
    if item.get_closest_marker(VIRTUAL):
        _check_virtual(item)
    failed: list[AssertionError] = []
    with scripted.assertion_listener(failed.append), pytest.MonkeyPatch.context() as patch:
        opened = item.stash.get(OPENED, [])
        if opened and isinstance(item, pytest.Function):
            patch.setattr(item, "obj", _opening(item.obj, opened))
        try:
            result = yield
        except Exception:
            if failed:
                raise failed[0]  # noqa: B904 -- what came of it is the context, not the cause
            raise
    if failed:
        raise failed[0]
    return result


@pytest.hookimpl(wrapper=True, specname="pytest_pyfunc_call")
def pytest_run_on_virtual_time(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Comes before other plugins that run coroutines: some have wrapped the test already, and
    others find a plain function here."""
    if not pyfuncitem.get_closest_marker(VIRTUAL):
        return (yield)
    test: Test = inspect.unwrap(pyfuncitem.obj, stop=inspect.iscoroutinefunction)

    @functools.wraps(test)
    def on_virtual_time(*args: Any, **fixtures: Any) -> None:
        run_virtual(test(*args, **fixtures))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyfuncitem, "obj", on_virtual_time)
        return (yield)


@pytest.hookimpl(specname="pytest_pyfunc_call")
def pytest_run_on_own_loop(pyfuncitem: pytest.Function) -> bool | None:
    """A coroutine that no other plugin has claimed gets a loop of its own."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test) or pyfuncitem.get_closest_marker("anyio"):
        return None
    names = inspect.signature(test).parameters
    asyncio.run(test(**{n: v for n, v in pyfuncitem.funcargs.items() if n in names}))
    return True


def _opening(test: Test, runtimes: list[Retinue[Any]]) -> Test:
    """The test, with these runtimes open around it."""

    @functools.wraps(test)
    async def opened(*args: Any, **fixtures: Any) -> None:
        for runtime in runtimes:
            async with runtime:
                await test(*args, **fixtures)

    return opened


def _check_virtual(item: pytest.Item) -> None:
    function = getattr(item, "obj", None)
    if not inspect.iscoroutinefunction(function):
        pytest.fail(
            f"The marker `{VIRTUAL}` is for `async def` tests. In a plain one, call "
            "retinue.testing.run_virtual.",
            pytrace=False,
        )


def _needs_coroutine(request: pytest.FixtureRequest, who: str) -> None:
    if not inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        pytest.fail(
            f"{who} needs a test that is written `async def`. In a plain one, use "
            "retinue.run_sync, or `async with Retinue()` in a coroutine of your own.",
            pytrace=False,
        )
