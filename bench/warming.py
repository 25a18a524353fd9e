"""What warming a prompt cache costs in time and saves in money: a fan-out and forks beside a
provider of 200 ms.

    python -m bench.warming [--n 60] [--latency 200]

The provider is the fake one, in a process of its own. A fan-out is a lead that hires n helpers of
three turns and answers: five calls one after another, so that the least is five latencies. A fork
is one turn on a conversation of 80 messages."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from typing import Any

from retinue import Actions, Agent, Context, Retinue, tool
from retinue.core.values import ModelInfo
from retinue.models.anthropic import AnthropicCodec
from retinue.models.codec import Options
from retinue.models.http import ConnectionPool, HttpModel
from retinue.models.openai_chat import OpenAIChatCodec

LONG = "You know all of this, and it is the same for all of you. " * 200
SONNET = ModelInfo(
    name="m",
    max_output=1_024,
    price_in=3_000,
    price_out=15_000,
    price_cache_read=300,
    price_cache_write=3_750,
)
PLAIN = ModelInfo(name="m", max_output=1_024)
CASES: dict[str, dict[str, Any]] = {
    "a server that copied a dialect": {"info": PLAIN, "codec": OpenAIChatCodec, "model": "m"},
    "the same, not streamed": {
        "info": PLAIN,
        "codec": OpenAIChatCodec,
        "model": "m",
        "stream": False,
    },
    "Anthropic, prefix too short": {
        "info": SONNET,
        "codec": AnthropicCodec,
        "model": "claude-opus-4-6",
    },
    "Anthropic, worth it": {"info": SONNET, "codec": AnthropicCodec, "model": "claude-sonnet-4-5"},
    "Anthropic, worth it, no cache": {
        "info": SONNET,
        "codec": AnthropicCodec,
        "model": "claude-sonnet-4-5",
        "cache": False,
    },
}


def made(url: str, client: ConnectionPool, case: dict[str, Any]) -> HttpModel:
    base = f"{url}/v1" if case["codec"] is OpenAIChatCodec else url
    options = Options(stream=case.get("stream", True), cache=case.get("cache", True))
    return HttpModel(
        case["info"],
        case["codec"](),
        model=case["model"],
        base_url=base,
        key="k",
        client=client,
        options=options,
    )


async def fan_out(model: HttpModel, n: int) -> tuple[float, float]:
    @tool(restart="pure", quick=True)
    def lookup() -> str:
        """Look something up."""
        return "found"

    @tool(restart="pure", quick=True)
    def hire(caller: Context) -> Actions:
        """Hire a helper."""
        return caller.spawn_actions(helper, "@@turns=3,tool=lookup@@ Help.")

    helper = Agent("helper", LONG, model=model, tools=[lookup])
    lead = Agent("lead", "You lead.", model=model, tools=[hire], staff=[helper])
    async with Retinue() as retinue:
        began = time.perf_counter()
        outcome = await retinue.run(lead, f"@@turns=2,tool=hire,calls={min(n, 64)}@@ Go.")
        elapsed = time.perf_counter() - began
        assert outcome.ok, outcome.error
        ends = [await retinue.outcome(child.id) for child in outcome.children]
        return elapsed, sum(end.usage.usd for end in ends if end is not None)


async def forks(model: HttpModel, n: int) -> tuple[float, float]:
    @tool(restart="pure", quick=True)
    def lookup() -> str:
        """Look something up."""
        return "found " * 100

    talker = Agent("talker", LONG, model=model, tools=[lookup])
    async with Retinue() as retinue:
        first = (await retinue.run(talker, "@@turns=40,tool=lookup@@ Talk.")).id
        began = time.perf_counter()
        started = [await retinue.fork(first, f"Task {i}") for i in range(n)]
        ends = [(await retinue.wait(run)) for run in started]
        elapsed = time.perf_counter() - began
        assert all(end is not None and end.ok for end in ends)
        return elapsed, sum(end.usage.usd for end in ends if end is not None)


async def measured(url: str, name: str, n: int, rounds: int) -> None:
    for what, run in (("fan-out", fan_out), ("forks", forks)):
        times, costs, waits = [], [], 0
        for _ in range(rounds):
            client = ConnectionPool()
            model = made(url, client, CASES[name])
            seconds, usd = await run(model, n)
            waits = getattr(model.warmth, "waits", 0)
            times.append(seconds)
            costs.append(usd)
            await client.close()
        usd = statistics.median(costs)
        print(
            f"{name:32} {what:8} {statistics.median(times):5.2f} s  {waits:3} waited  "
            f"{f'${usd:.4f}' if usd else ''}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.warming", description=__doc__)
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--latency", type=float, default=200.0, help="milliseconds")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    command = [
        sys.executable,
        "-m",
        "retinue.testing.fake_llm.fake_provider",
        "--latency",
        str(options.latency),
    ]
    for name in CASES:
        # A provider of its own for each, so that nobody finds what another has cached.
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as provider:
            assert provider.stdout is not None
            try:
                asyncio.run(
                    measured(provider.stdout.readline().strip(), name, options.n, options.rounds)
                )
            finally:
                provider.terminate()


if __name__ == "__main__":
    main()
