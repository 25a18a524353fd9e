"""SQL statements that write rows, in the order that foreign keys need."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import apsw

from retinue.store.row_batch import Value, Values

SIZES = (*range(256, 16, -16), *range(16, 0, -1))
"""Any number up to 16 is one statement, and any up to 256 at most two."""


class Many:
    """One statement for many rows, in chunks of a few sizes, so that each statement is prepared
    once.

    A statement gives the interpreter's lock away once, however many rows it has. `executemany` does
    so for each row, and beside a busy event loop every return costs up to a switch interval: 1,400
    µs a row against 110 were measured."""

    def __init__(self, head: str, n_columns: int, tail: str = "") -> None:
        row = f"({','.join('?' * n_columns)})"
        self._n_columns = n_columns
        self._sizes = [(size, head + ",".join([row] * size) + tail) for size in SIZES]

    def __call__(self, db: apsw.Connection, rows: Iterable[Values]) -> None:
        self.write(db, list(chain.from_iterable(rows)))

    def write(self, db: apsw.Connection, flat: list[Value]) -> None:
        """The values of all rows, one after the other."""
        if not flat:
            return
        remaining, start, n_columns = len(flat) // self._n_columns, 0, self._n_columns
        for size, sql in self._sizes:
            while remaining >= size:
                stop = start + size * n_columns
                remaining -= size
                db.execute(sql, flat if not remaining and not start else flat[start:stop])
                start = stop
                if not remaining:
                    return


INSERT_EVENTS = Many(
    "insert into events (seq, tree, number, run, owner, at, digest, chain) values ", 8
)
INSERT_BODIES = Many("insert into bodies (seq, body) values ", 2)
MOVE_HEADS = Many(
    "insert into trees (n, root, last, chain) values ",
    4,
    " on conflict (n) do update set last = excluded.last, chain = excluded.chain",
)
# A parent in the same batch has no row yet. Its conversation then has its id, or was put here by
# the writer.
INSERT_CONVERSATIONS = Many(
    "insert into conversations (n, id, parent_id, user_initiated, base_id, base_length, "
    "base_start, created_at, title)"
    " select column1, column2, coalesce((select conversation from runs where id = column3),"
    " column3), column4, column5, column6, column7, column8, column9 from (values ",
    9,
    ")",
)
INSERT_RUNS = Many(
    "insert into runs (n, id, conversation, root, parent, slot_turn, slot_index, open, turn, "
    "state, created_at, ended_at, body, account) values ",
    14,
)
INSERT_SPECS = Many("insert into specs (run, body) values ", 2)
INSERT_MESSAGES = Many("insert into messages (conversation, n, body) values ", 3)
# No index changes with a run that stays open.
CHANGE_RUNS = Many(
    "update runs set turn = column2, state = column3, body = column4,"
    " account = coalesce(column5, account) from (values ",
    5,
    ") where n = column1",
)
END_RUNS = Many(
    "update runs set open = 0, turn = column2, state = column3, body = column4,"
    " account = coalesce(column5, account), ended_at = column6 from (values ",
    6,
    ") where n = column1",
)
CHANGE_ACCOUNTS = Many("update runs set account = column2 from (values ", 2, ") where n = column1")
REFER = {
    "named_in_trees": "select n from trees where root = column2",
    "named_in_conversations": "select n from trees where root = (select root from runs where "
    "conversation = column2"
    " order by n desc limit 1)",
    "named_in_runs": "select n from trees where root = (select root from runs where id = column2)",
}
"""How the tree is found in which an artifact is named."""

_BY_NAME = " on conflict (name) do update set body = excluded.body"

TABLES: dict[str, Many] = {
    "posted": Many("insert into mail (run, seq, body) values ", 3),
    "taken": Many("delete from mail where (run, seq) in (values ", 2, ")"),
    "deliveries": Many(
        "insert into outbox (key, run, state, next_at, body) values ",
        5,
        " on conflict (key) do update set state = excluded.state, next_at = excluded.next_at, "
        "body = excluded.body",
    ),
    "definitions": Many("insert into definitions (name, body) values ", 2, _BY_NAME),
    "models": Many("insert into models (name, body) values ", 2, _BY_NAME),
    # A refused row would take down the batches that share its transaction, so what is out of place
    # is passed over.
    "board": Many(
        "insert into board (root, key, at, body) select column1, column2, column3, column4 from "
        "(values ",
        4,
        ") where exists (select 1 from runs where id = column1) on conflict (root, key) do nothing",
    ),
}
