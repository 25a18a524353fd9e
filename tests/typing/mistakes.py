"""Mistakes that people make. Both type checkers must report every marked line, and no other."""
# pyright: standard

from dataclasses import dataclass

from pydantic import BaseModel

from retinue import (
    Agent,
    Budget,
    BudgetQuestion,
    Context,
    ModelSettings,
    Origin,
    PermissionQuestion,
    Retinue,
    TextQuestion,
    family,
    tool,
)
from retinue.events import RunEnded, ToolReturned


class Invoice(BaseModel):
    number: str
    total: float


@dataclass
class Shop:
    prices: dict[str, float]


@dataclass
class Bank:
    balance: float


reader = Agent("reader", "Read.", model="openai:gpt-5", output=Invoice)


@tool(restart="pur")  # MISTAKE: no such restart class
def one(path: str) -> str:
    return path


@tool
def price(ctx: Context[Shop], item: str) -> float:
    return ctx.deps.price[item]  # MISTAKE: the dependency has `prices`


@tool
async def total(ctx: Context, files: list[str]) -> float:
    """Add up invoices."""
    await ctx.gather(reader, files)  # MISTAKE: a list where tasks are wanted (`*files`)
    await ctx.run(reader, 17)  # MISTAKE: a task is a text
    await ctx.run(reader, "a.pdf", timeout_s=60)  # MISTAKE: the option is `timeout`
    ctx.run(reader, "a.pdf")  # MISTAKE: `await` is missing
    found = await ctx.run(reader, "a.pdf")
    if found.output.total > 3:  # MISTAKE: there may be no output; ask `unwrap()` or check
        return found.unwrap().total
    return found.unwrap().sum  # MISTAKE: the result has `total`


warm = Agent("warm", settings=ModelSettings(temperature="hot"))  # MISTAKE: it is a number
bank = Agent("bank", deps_type=Bank, tools=[price])  # MISTAKE: the tool needs a Shop
loose = Agent("loose", tool=[one])  # MISTAKE: the option is `tools`
plain = Agent("plain", tools=[len])  # MISTAKE: a plain function; write tool(len)
crew = Agent("crew", families=[family("fanout", max_task=5)])  # MISTAKE: it is `max_tasks`
schema = Agent("schema", output={"type": "object"})  # MISTAKE: write json_schema({...})
keeper = Agent("keeper", deps_type=Shop, tools=[price, "read"])


async def main(retinue: Retinue, shop: Retinue[Shop]) -> None:
    await retinue.run(keeper, "Hello.")  # MISTAKE: this runtime has no Shop
    await shop.run(keeper, 17)  # MISTAKE: a task is a text
    await shop.gather(keeper, ["a", "b"])  # MISTAKE: a list where tasks are wanted (`*tasks`)
    await shop.run(keeper, "Hello.", timeout_s=60)  # MISTAKE: the option is `timeout`
    shop.run(keeper, "Hello.")  # MISTAKE: `await` is missing
    await shop.run(keeper, "Hello.", budget=5)  # MISTAKE: a budget is a Budget
    await shop.run(keeper, "Hello.", budget=Budget(dollars=5))  # MISTAKE: the field is `usd`
    await shop.run(keeper, "Hello.", origin=Origin("web", "ada"))  # MISTAKE: values take keywords
    await shop.run(keeper, "Hello.", on_cancel="stop")  # MISTAKE: it is `keep` or `cancel`
    outcome = await shop.run(keeper, "Hello.")
    outcome.unwrap().number  # MISTAKE: this agent returns a text
    print(outcome.output_text)  # MISTAKE: the field is `text`
    found = await shop.run(reader, "a.pdf")
    if found.output.total > 3:  # MISTAKE: there may be no output; ask `unwrap()` or check
        print(found.unwrap().sum)  # MISTAKE: the result has `total`
    run = await shop.spawn(reader, "b.pdf")
    number: int = (await shop.wait(run)).unwrap().number  # MISTAKE: it is a `str`
    print(number)
    async for run_info in shop.runs(state="complete"):  # MISTAKE: the state is `completed`
        print(run_info.id)
    for line in shop.runs():  # MISTAKE: it is an async iterator
        print(line)
    async for question in shop.questions(live=True):
        if isinstance(question, TextQuestion):
            await shop.decide(question, True)  # MISTAKE: a question in words wants `answer`
        if isinstance(question, PermissionQuestion):
            await shop.decide(question.id)  # MISTAKE: yes or no?
            print(question.call.parameters)  # MISTAKE: the attribute is `arguments`
        if isinstance(question, BudgetQuestion):
            await shop.answer(question, "yes")  # MISTAKE: a budget wants `decide`
    async for event in shop.stream(run, tree=True):
        print(event.status)  # MISTAKE: no event has it
        if isinstance(event, RunEnded):
            print(event.status)  # MISTAKE: the field is `state`
        if isinstance(event, ToolReturned):
            print(event.call.args)  # MISTAKE: the attribute is `arguments`
    async for event in shop.stream(run, all=True):  # MISTAKE: the option is `tree`
        print(event.seq)
    price("apple")  # MISTAKE: called directly, the tool wants its context
