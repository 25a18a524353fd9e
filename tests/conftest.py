"""For all tests."""

from __future__ import annotations

import gc
import warnings
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is slow, which says nothing about what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
HERE = Path(__file__).parent
LONG = ("simulation/test_simulation.py", "crash/test_crash.py", "simulation/", "crash/")
"""The longest first: a worker that gets one of these last leaves the others idle."""
SWEPT_AFTER = 1_000
_ended = [0]
_left_open: list[str] = []
_close = BaseSelectorEventLoop.close


def pytest_sessionstart() -> None:
    gc.disable()  # nothing that is imported or collected here is garbage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.path.relative_to(HERE).as_posix()))


def _rank(path: str) -> int:
    return next((n for n, start in enumerate(LONG) if path.startswith(start)), len(LONG))


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


def _checked_close(loop: Any) -> None:
    """What a loop still holds when it is closed is never closed by anybody: a warning about it
    would come much later and fail a test that has nothing to do with it."""
    if not loop.is_running() and not loop.is_closed():
        for transport in list(loop._transports.values()):
            if getattr(transport, "_sock", None) is not None:
                _left_open.append(f"{transport!r} {transport._sock!r} {transport._protocol!r}")
    _close(loop)


@pytest.fixture(autouse=True, scope="session")
def _every_loop_is_checked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseSelectorEventLoop, "close", _checked_close)
        yield


def _sweep() -> None:
    """Whatever has become garbage since it was frozen, once in a while. Its warnings come too late
    for their test."""
    _ended[0] += 1
    if _ended[0] % SWEPT_AFTER == 0:
        with warnings.catch_warnings(action="ignore"):
            gc.unfreeze()
            gc.collect()
            gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_is_left_to_others() -> Iterator[None]:
    """A test's own garbage is collected at its end, so that what it has not closed fails it and no
    other. What is alive then is not looked at again, which makes this cheap, and every collection
    after it."""
    yield
    gc.collect()
    gc.freeze()
    _sweep()
    _left_opens, _left_open[:] = list(_left_open), []
    assert not _left_opens, "still open when its loop was closed"


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: the address of a Unix socket has room for 107 bytes, and the names of tests and
    users are long."""
    return tmp_path_factory.mktemp("t")
