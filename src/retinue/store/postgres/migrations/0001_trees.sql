-- Bodies are JSON in UTF-8, kept as bytes; times are integer milliseconds since the epoch. Times that only the database
-- compares with its own clock are `timestamptz`. What is text here has no foreign keys: a writer of one tree never waits
-- for a row of another.

-- The position of an event over all trees. It only grows and has holes: where a transaction failed, or a tree was
-- forgotten. What was written with a lower position may still be on its way: see `SAFE` in queries.py.
create sequence positions;

-- One row for the store: what this database is.
create table store (
    id uuid not null default gen_random_uuid(),
    -- A copy that is not finished: nothing opens it but the command that makes it.
    incomplete boolean not null default false,
    is_store boolean primary key default true check (is_store)
);
insert into store default values;

-- A tree of runs has a log of its own (numbers and hash chain, the same as in SQLite) and one writer at a time.
-- `root` is the id of its first run; '' is what concerns the whole store. `last` and `chain` are those of its last event.
-- Events up to `cut` were deleted: the next one hangs on `cut_chain`. Of a tree that was forgotten only this row is left.
--
-- `epoch`: each commit locks this row and is refused if the epoch is not its own; who takes the tree adds one. One
-- process that opens the whole store holds '' in the same way, and no tree then has an owner.
-- `owner`: the worker that drives the tree, or null. The lease is that worker's row; safety is the epoch.
-- `wake_at`: when somebody must drive it next if nothing arrives before; null when it waits for the inbox only.
create table trees (
    root text primary key,
    last bigint not null default 0,
    chain bytea not null,
    cut bigint not null default 0,
    cut_chain bytea,
    forgotten_at bigint,
    epoch bigint not null default 0,
    owner uuid,
    wake_at timestamptz
) with (fillfactor = 70);
create index trees_due on trees (wake_at) where wake_at is not null and owner is null;
create index trees_owner on trees (owner) where owner is not null;

-- One row for each start of a worker. It lives as long as `until` is in the future: the worker moves it from a thread
-- of its own, and one that finds it in the past stops its trees before it moves it again.
create table workers (
    id uuid primary key default gen_random_uuid(),
    name text not null,
    version text not null,
    -- What it offers, for effects that need something: {"labels": [...], "slots": 8, ...}
    offers jsonb not null default '{}',
    started_at timestamptz not null default now(),
    until timestamptz not null,
    draining boolean not null default false
);

-- What comes to a tree from outside (messages, cancellations, answers, mail of other trees, a start). A row is put here
-- while the tree's row is locked, in the transaction that wakes it; it leaves in the commit that records its event.
-- `key` makes a repeated delivery the same row.
create table inbox (
    n bigint generated always as identity primary key,
    root text not null,
    key text not null,
    kind text not null,
    body bytea not null,
    at timestamptz not null default now(),
    unique (root, key)
);

-- `chain` hashes the tree's previous chain, the number, the time, the digest of the body and the run. An event whose
-- body is null (of a run that was not to be kept) holds its place in the chain. `run` is '' for what concerns the tree.
create table events (
    seq bigint primary key,
    root text not null,
    number bigint not null,
    run text not null,
    at bigint not null,
    digest bytea not null,
    chain bytea not null,
    body bytea
);
create unique index events_tree on events (root, number);
create index events_run on events (run, seq) where run <> '';

-- `n` is the order in which rows came.
create table conversations (
    id text primary key,
    n bigint generated always as identity,
    parent_id text,
    base_id text,
    base_length bigint,
    base_start bigint,
    created_at bigint not null,
    title text not null
);
create index conversations_parent on conversations (parent_id) where parent_id is not null;
create index conversations_base on conversations (base_id) where base_id is not null;

create table messages (
    conversation text not null,
    n bigint not null,
    body bytea not null,
    primary key (conversation, n)
);

create table runs (
    id text primary key,
    n bigint generated always as identity,
    conversation text not null,
    root text not null,
    parent text not null,
    slot_turn bigint,
    slot_index bigint,
    open boolean not null,
    turn bigint not null,
    state text not null,
    created_at bigint not null,
    ended_at bigint,
    body bytea not null,
    account bytea
) with (fillfactor = 70);
create unique index runs_n on runs (n);
create index runs_parent on runs (parent, slot_turn, n) where parent <> '';
create index runs_conversation on runs (conversation);
create index runs_root on runs (root, n);
create index runs_open on runs (root) where open;

-- What never changes of a run stands apart from what does.
create table specs (
    run text primary key,
    body bytea not null
);

create table mail (
    run text not null,
    seq bigint not null,
    body bytea not null,
    primary key (run, seq)
);

create table outbox (
    key text primary key,
    n bigint generated always as identity,
    run text not null,
    state text not null,
    next_at bigint not null,
    body bytea not null
);
create index outbox_open on outbox (n) where state in ('pending', 'sent', 'dead');
create index outbox_run on outbox (run);

create table definitions (
    name text primary key,
    n bigint generated always as identity,
    body bytea not null
);

create table models (
    name text primary key,
    n bigint generated always as identity,
    body bytea not null
);

-- The to-do list of a tree, as the acts that made it; the key is that of the call that acted.
create table board (
    n bigint generated always as identity primary key,
    root text not null,
    key text not null,
    at bigint not null,
    body bytea not null,
    unique (root, key)
);
create index board_root on board (root, n);

-- Bytes under their hash. `waiting_since` is null once a commit has named them: from then on they go with the last tree
-- that does.
create table artifacts (
    sha256 bytea primary key,
    size bigint not null,
    waiting_since timestamptz default now(),
    body bytea not null
);
-- Parts of a body are read without the rest.
alter table artifacts alter column body set storage external;

create table artifact_refs (
    sha256 bytea not null,
    root text not null,
    primary key (sha256, root)
);
create index artifact_refs_root on artifact_refs (root);
