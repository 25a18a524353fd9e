"""`retinue worker` and `retinue serve --shared` as processes, each with a home of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from retinue.formats.dispatch_address import DATABASE, PROCRASTINATE, TEMPORAL
from tests import postgres, temporal
from tests.waiting import PATIENT


def retinue(home: Path, project: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    home.mkdir(exist_ok=True)
    environ = {
        **PATIENT,
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home),
        "PATH": os.environ["PATH"],
    }
    environ |= more
    return subprocess.Popen(
        [sys.executable, "-m", "retinue", *words],
        env=environ,
        cwd=project,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for_workers(url: str, n: int) -> None:
    until = time.monotonic() + 90
    while time.monotonic() < until:
        with psycopg.connect(url) as db:
            has_table = db.execute("select to_regclass('workers') is not null").fetchone()
            if has_table == (True,):
                count = db.execute("select count(*) from workers").fetchone()
                if count == (n,):
                    return
        time.sleep(0.2)
    raise AssertionError("the workers did not start")


@pytest.mark.parametrize("engine", [DATABASE, PROCRASTINATE, TEMPORAL])
def test_a_run_of_the_command_line_is_driven_by_any_node(tmp_path: Path, engine: str) -> None:
    url, project = postgres.fresh(), tmp_path / "project"
    address = f"temporal://{temporal.address()}" if engine == TEMPORAL else engine
    project.mkdir()
    (project / "main.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
    base, variable = ["--store", url], {"RETINUE_DISPATCH": address}
    nodes = [
        retinue(tmp_path / "a", project, *base, "worker", "--dispatch", address),
        retinue(tmp_path / "b", project, *base, "serve", "--shared", "--port", "0", **variable),
    ]
    try:
        wait_for_workers(url, 2)
        words = [*base, "run", "--model", "offline/explorer", "map this repository"]
        run = retinue(tmp_path / "b", project, *words)
        out, err = run.communicate(timeout=90)
        assert run.returncode == 0, err
        assert "main.py" in out
        status = retinue(tmp_path / "c", project, *base, "cluster", "status", "--json")
        out, err = status.communicate(timeout=60)
        assert status.returncode == 0, err
        assert len(json.loads(out)["workers"]) == 2
    finally:
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        codes = [node.wait(60) for node in nodes]
        for node in nodes:
            node.communicate()
    assert codes == [0, 0]
    with psycopg.connect(url) as db:
        assert db.execute("select count(*) from trees where is_open").fetchone() == (0,)
        assert db.execute("select count(*) from takeovers").fetchone() == (0,)


@pytest.mark.parametrize("text", ["cron", "temporal://", "temporal://me@host:7233", "temporal://h"])
def test_a_dispatcher_that_does_not_exist_is_refused_before_anything_starts(
    tmp_path: Path, text: str
) -> None:
    words = ["--store", "postgresql://nobody@127.0.0.1:1/none", "worker", "--dispatch", text]
    worker = retinue(tmp_path / "home", tmp_path, *words)
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == 2
    assert "`procrastinate`" in err


def test_a_worker_says_that_its_dispatcher_cannot_be_reached(tmp_path: Path) -> None:
    words = ["--store", postgres.fresh(), "worker", "--dispatch", "temporal://127.0.0.1:1"]
    worker = retinue(tmp_path / "home", tmp_path, *words)
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == 1
    assert "Temporal at 127.0.0.1:1 cannot be reached" in err and "Traceback" not in err
