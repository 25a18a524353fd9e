"""SQL queries that read from the database."""

from __future__ import annotations

# A conversation is its own messages from `low` on, behind those of its base, which may have a base
# of its own. Only the parts that reach below `start` are followed.
SPAN = """
with recursive part (id, low, high, base) as (
    select id, coalesce(base_length, 0), %(stop)s::bigint, base_id
    from conversations where id = %(conversation)s
    union
    select c.id, coalesce(c.base_length, 0), least(part.low, part.high), c.base_id
    from part join conversations c on c.id = part.base
    where part.low > %(start)s
)"""
MESSAGES = """
from part join messages on messages.conversation = part.id
and messages.n >= greatest(part.low, %(start)s) and messages.n < part.high
order by messages.n"""
ROW = "select specs.body, runs.body from runs join specs on specs.run = runs.id"
# Of the whole store, or of one tree: `root` is null, or its id.
_MINE = "(%(root)s::text is null or runs.root = %(root)s)"
_UP = f"""
with recursive up (id) as (
    select runs.parent from runs where open and runs.parent <> '' and {_MINE}
    union
    select parent from up join runs using (id) where parent <> ''
)"""
OPEN = f"{ROW} where open and {_MINE} order by runs.n"
BACK = f"""
{ROW} where not open and runs.id in (
    select c.id from runs join runs c on c.parent = runs.id and c.slot_turn = runs.turn
    where runs.open and not c.open and {_MINE}
) order by runs.n"""
ABOVE = f"{_UP} {ROW} where not open and runs.id in (select id from up) order by runs.n"
ACCOUNTS = f"""
{_UP} select account from runs where account is not null
and (runs.id in (select id from up) or (open and {_MINE}))"""
MAIL = f"""
select mail.run, mail.body from runs join mail on mail.run = runs.id
where open and {_MINE} order by mail.run, seq"""
DELIVERIES = f"""
select outbox.body from outbox left join runs on runs.id = outbox.run
where outbox.state in ('pending', 'sent', 'dead') and {_MINE} order by outbox.n"""
LISTING = """
select runs.id, root, parent, specs.body, state, created_at, ended_at
from runs join specs on specs.run = runs.id where"""
ENTRIES = "select seq, body, root from events where body is not null"
OF_TREE = "select number, body, root from events where body is not null"
LAST_SEQ = "select case when is_called then last_value else 0 end from positions"
STORE_KEY = "hashtextextended('retinue store ' || current_schema(), 0)"
"""What a process that writes to the store locks: alone, or together with other workers."""
# What several workers write may arrive in another order than its positions say. A writer
# holds a lock with a number below all positions that it has drawn; below the lowest of these,
# nothing is on its way. The last position is read first: what is drawn later is above it.
WRITING = f"""
select min((classid::bigint << 32 | objid::bigint) & ((1::bigint << 48) - 1)) from pg_locks
where locktype = 'advisory' and objsubid = 1
and database = (select oid from pg_database where datname = current_database())
and classid::bigint >> 16 = hashtext('retinue ' || current_schema())::bigint & 32767
and (classid::bigint << 32 | objid::bigint) <> {STORE_KEY}"""
MARK_WRITING = """
select pg_advisory_xact_lock_shared(
    ((hashtext('retinue ' || current_schema())::bigint & 32767) << 48)
    | case when is_called then last_value else 0 end
) from positions"""
# Conversations that a user began, by their end. Each is known by the run that began it.
ENDED = """
select c.id, max(r.ended_at) from conversations c join runs r on r.conversation = c.id
where c.parent_id is null
group by c.id, c.n having not bool_or(r.open) and max(r.ended_at) is not null order by 2, c.n"""
# What still hangs on one: open runs anywhere below it, and announcements that have not arrived.
HELD = """
with recursive tree (id) as (
    select %(id)s::text union select c.id from tree join conversations c on c.parent_id = tree.id
)
select
    (select count(*) from tree join runs on runs.conversation = tree.id where runs.open),
    (
        select count(*) from outbox join runs on runs.id = outbox.run
        where outbox.state in ('pending', 'sent', 'dead')
        and runs.conversation in (select id from tree)
    )"""
ROOTS_NAMING = """
select root from artifact_refs
where sha256 = decode(%s, 'hex') and root in (select id from runs) order by root"""
# Runs are numbered as they come, so the first that is old enough, from the newest down, is where to
# stop.
STARTED = f"""
{ROW} where runs.n > coalesce(
    (select n from runs where created_at < %s order by n desc limit 1), 0
) and parent <> '' order by runs.n"""
DEFINITIONS = "select body from definitions order by n"
MODELS = "select body from models order by n"
HOLDERS = f"""
select a.application_name from pg_locks l join pg_stat_activity a using (pid)
where l.locktype = 'advisory' and l.granted and l.pid <> pg_backend_pid()
and l.objsubid = 1 and (l.classid::bigint << 32 | l.objid::bigint) = {STORE_KEY}"""
