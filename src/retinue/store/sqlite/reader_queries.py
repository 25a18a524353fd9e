"""SQL queries that read from the store."""

from __future__ import annotations

# A conversation is its own messages from `low` on, behind those of its base, which may have a base
# of its own. Only the parts that reach below :start are followed.
SPAN = """
with recursive part (n, low, high, base) as (
    select n, coalesce(base_length, 0), :stop, base_id from conversations where id = :conversation
    union
    select c.n, coalesce(c.base_length, 0), min(part.low, part.high), c.base_id
    from part join conversations c on c.id = part.base
    where part.low > :start
)"""
MESSAGES = """
from part cross join messages
on messages.conversation = part.n and messages.n >= max(part.low, :start) and messages.n < part.high
order by messages.n"""
_UP = """
with recursive up (id) as (
    select parent from runs where open = 1 and parent <> ''
    union
    select parent from up join runs using (id) where parent <> ''
)"""
ROOTS_NAMING = """
select root from artifact_refs join trees on trees.n = tree
where sha256 = unhex(?) and root in (select id from runs) order by root"""
ROW = "select specs.body, runs.body from runs cross join specs on run = n"
OPEN = f"{ROW} where open = 1 order by n"
BACK = f"""
{ROW} where n in (
    select c.n from runs p cross join runs c on c.parent = p.id and c.slot_turn = p.turn
    where p.open = 1 and c.open = 0
) order by n"""
ABOVE = f"{_UP} {ROW} where open = 0 and id in (select id from up) order by n"
ACCOUNTS = (
    f"{_UP} select account from runs where id in (select id from runs where open = 1 "
    "union select id from up) and account is not null"
)
MAIL = "select mail.run, mail.body from runs join mail on run = id where open = 1 order by run, seq"
DELIVERIES = "select body from outbox where state in ('pending', 'sent', 'dead') order by rowid"
LISTING = """
select id, root, parent, specs.body, state, created_at, ended_at
from runs cross join specs on run = n where"""

# Bodies that are gone (of children that were not to be kept) are omitted.
_ENTRIES = (
    "from events e cross join bodies b on b.seq = e.seq cross join trees t on t.n = e.tree where"
)
OF_RUN = "e.owner = (select n from runs where id = :run) and"
BY_SEQ = f"select e.seq, b.body, t.root {_ENTRIES} %s e.seq > :after order by e.seq limit :limit"
BY_NUMBER = f"""
select e.number, b.body, t.root {_ENTRIES} %s
e.tree = (select n from trees where root = :tree) and e.number > :after
order by e.number limit :limit"""
# The last position that was given out. Rows of forgotten trees are gone; their positions are not
# used again.
LAST_SEQ = """
select max(
    (select coalesce(max(seq), 0) from events),
    coalesce((select value from meta where key = 'seq'), 0)
)"""
# Conversations that a user began, by their end. Each is known by the run that began it.
ENDED = """
select c.id, max(r.ended_at) from conversations c cross join runs r on r.conversation = c.id
where c.parent_id is null
group by c.n having max(r.open) = 0 and max(r.ended_at) is not null order by 2, c.n"""
# What still hangs on one: open runs anywhere below it, and announcements that have not arrived.
HELD = """
with recursive tree (id) as (
    select :id union select c.id from tree join conversations c on c.parent_id = tree.id
)
select
    (select count(*) from tree cross join runs on runs.conversation = tree.id where runs.open = 1),
    (
        select count(*) from outbox cross join runs on runs.id = outbox.run
        where outbox.state in ('pending', 'sent', 'dead')
        and runs.conversation in (select id from tree)
    )"""
# A file that no writer of this version has opened yet.
OLD = (
    "select seq, body, '' from events e where %s seq > :after and body is not null order by "
    "seq limit :limit"
)
OLD_ACCOUNTS = f"""
{_UP} select body from accounts
where id in (select id from runs where open = 1 union select id from up)"""
