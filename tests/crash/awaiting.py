"""A program whose tools await children, killed again and again: `python -m tests.crash.awaiting
FOLDER N` is one life, which ends by SIGKILL at the nth thing that it does, if it does so many.

What really happens is written down outside the log, one line at a time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from retinue import Agent, Context, Retinue, tool
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call

LOG, JOURNAL, ANSWER = "log.db", "journal", "answer"
PARTS = [f"part {n}" for n in range(5)]


class Life:
    """One process, and how much it may do."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self._left = folder, most
        self._fd = os.open(folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def did(self, what: str) -> None:
        os.write(self._fd, f"{what}\n".encode())
        self.pass_by()

    def pass_by(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def agents(self) -> Agent:
        async def work(request: ModelRequest) -> str:
            part = request.messages[0].text
            await asyncio.sleep(0.01 * (len(part) + int(part[-1])))
            self.did(f"worked {request.run} {part}")
            return f"<{part}>"

        worker = Agent("worker", model=Scripted(work, name="worker"))

        @tool(restart="pure")
        async def survey(ctx: Context) -> str:
            """Everything that a function can await."""
            self.did(f"survey {ctx.key} {ctx.now.isoformat()}")
            first = await ctx.gather(worker, *PARTS, at_once=3)
            self.pass_by()
            beside = await ctx.spawn(worker, "beside 1", tell_parent=False)
            both = await asyncio.gather(ctx.run(worker, "twin 1"), ctx.run(worker, "twin 1"))
            self.pass_by()
            colour = await ctx.ask("Which colour?")
            self.did(f"answered {colour}")
            last = await ctx.wait(beside)
            texts = [*first.results, *(one.text for one in both), last.text]
            return f"{' '.join(texts)} {colour}"

        @tool
        async def errand(ctx: Context) -> str:
            """It may not run twice."""
            self.did(f"errand {ctx.key}")
            return " ".join((await ctx.gather(worker, "errand 1", "errand 2")).results)

        def lead(request: ModelRequest) -> object:
            if request.turn < 2:
                return call("survey" if request.turn == 0 else "errand")
            results = [m.text for m in request.messages if getattr(m, "call_id", "")]
            return "\n--\n".join(results)

        return Agent(
            "lead", model=Scripted(lead, name="lead"), tools=[survey, errand], staff=[worker]
        )


async def main(folder: Path, most: int) -> None:
    life = Life(folder, most)
    lead = life.agents()
    async with Retinue(folder / LOG, agents=[lead]) as retinue:
        run = await retinue.spawn(lead, "Go.", key="once", questions="ask")
        life.pass_by()
        while (outcome := await retinue.outcome(run)) is None:
            for question in await retinue.open_questions():
                await retinue.answer(question.id, "red")
                life.pass_by()
            await asyncio.sleep(0.01)
    (folder / ANSWER).write_text(outcome.text)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
