"""Checks that the database is intact. The hash chain of its tree names each row that is not."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from retinue.store.chain_check import MOST, PAGE, ChainWalk
from retinue.store.postgres.postgres_errors import store_error

if TYPE_CHECKING:
    import psycopg

_ROWS = """
select t.root as tree, t.root, t.last, t.chain, t.cut, t.cut_chain,
    e.seq, e.number, e.run, e.at, e.digest, e.chain, e.body
from trees t left join events e on e.root = t.root {behind}
where {which} order by t.root, e.number limit %(page)s"""
_REST = _ROWS.format(behind="and e.number > %(number)s", which="t.root = %(tree)s")
_FIRST = _ROWS.format(behind="", which="true")
_NEXT = _ROWS.format(behind="", which="t.root > %(tree)s")
STRAYS = {
    "{} events belong to trees that do not exist.": (
        "select count(*) from events e where not exists (select 1 from trees where root = e.root)"
    ),
    "{} runs have no request.": (
        "select count(*) from runs r where not exists (select 1 from specs where run = r.id)"
    ),
    "{} requests belong to runs that do not exist.": (
        "select count(*) from specs s where not exists (select 1 from runs where id = s.run)"
    ),
    "{} runs belong to conversations that do not exist.": (
        "select count(*) from runs r where not exists "
        "(select 1 from conversations where id = r.conversation)"
    ),
    "{} messages belong to conversations that do not exist.": (
        "select count(*) from messages m where not exists "
        "(select 1 from conversations where id = m.conversation)"
    ),
}


def verify(db: psycopg.Connection[Any], url: str) -> list[str]:
    """One sentence for each thing that is wrong."""

    def page(sql: str, tree: Any = None, number: int = 0) -> list[Any]:
        args = {"tree": tree, "number": number, "page": PAGE}
        return db.execute(sql, args).fetchall()

    walk = ChainWalk(
        lambda tree, number: page(_REST, tree, number),
        lambda tree: page(_FIRST if tree is None else _NEXT, tree),
    )
    problems: list[str] = []
    try:
        problems += islice(walk.all_trees(), MOST)
        if len(problems) == MOST:
            problems.append("The check of the log stopped here.")
        for sentence, sql in STRAYS.items():
            row = db.execute(sql).fetchone()
            if row is not None and row[0]:
                problems.append(sentence.format(row[0]))
    except Exception as error:
        problems.append(str(store_error(error, url, "Nothing was changed.")))
    return problems
