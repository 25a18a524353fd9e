"""A database that `pg_dump` copied while workers used it is restored, and its runs continue."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

from retinue import Agent
from retinue.store.postgres.connections import connect
from retinue.store.postgres.postgres_integrity import verify
from retinue.testing import Scripted, call
from tests import postgres
from tests.cluster.test_nodes import run, until
from tests.cluster.workload import agents, node, rows


def asker() -> Agent[Any, Any]:
    model = Scripted([call("ask", question="Which?"), "thank you"], name="asker")
    return Agent("asker", "Ask.", model=model, tools=["ask"])


def moved(url: str, tmp_path: Path) -> str:
    """The same schema in a database that was made from a dump."""
    server, (schema,) = postgres.server(), [part for part in url.split("%3D") if "/" not in part]
    copy, file = f"copy_{schema}", tmp_path / "dump"
    programs = server.programs / "bin"
    source = ["-h", str(server.folder), "-U", "retinue"]
    dump = ["pg_dump", "-Fc", "-n", schema, "-f", file, *source, "postgres"]
    subprocess.run([programs / dump[0], *dump[1:]], check=True)
    server.execute(f"create database {copy}")
    restore = ["pg_restore", "-d", copy, *source, file]
    subprocess.run([programs / restore[0], *restore[1:]], check=True)
    return url.replace("/postgres?", f"/{copy}?")


def test_a_restored_database_is_sound_and_its_runs_continue(tmp_path: Path) -> None:
    async def test() -> None:
        url, own = postgres.fresh(), [*agents(), asker()]
        async with node(url, agents=own, name="first") as one:
            outcome = await one.run(own[0], "do it")
            id = await one.spawn(own[2], "ask", questions="ask")

            async def asks() -> bool:
                return bool([question async for question in one.questions()])

            await until(asks)
            restored = await asyncio.to_thread(moved, url, tmp_path)
            await one.cancel(id)
        with connect(restored) as db:
            assert verify(db, restored) == []
        async with node(restored, agents=[*agents(), asker()], name="second") as two:
            assert (await two.outcome(outcome.id)).text == "all done"
            (question,) = [question async for question in two.questions()]
            await two.answer(question.id, "the red one")
            assert (await two.wait(id)).text == "thank you"
        assert await rows(restored, "select count(*) from trees where is_open") == [(0,)]

    run(test())
