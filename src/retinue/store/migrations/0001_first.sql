-- Bodies are JSON in UTF-8, kept as blobs; times are integer milliseconds.
--
-- Ids are texts. Where rows are many or change at every step, they hang on a small number instead (`n`), and what never
-- changes stands apart from what does: the cost of a commit is the number of pages that it touches.
pragma application_id = 1380275249; -- "RET1": this file is ours

-- `digest` is the hash of the body, `chain` that of the previous row's chain, the number, the time, the digest and the
-- run: a purged row (its body is null) keeps the chain whole. `owner` is the run's number, if it has one. Entries of an
-- index end with the row's own number, so this one is in fact on (owner, seq).
create table events (
    seq integer primary key,
    run text not null,
    owner integer,
    at integer not null,
    body blob,
    digest blob not null,
    chain blob not null
);
create index events_owner on events (owner) where owner is not null;

create table conversations (
    n integer primary key,
    id text not null unique,
    parent_id text references conversations (id) on delete cascade,
    user_initiated integer not null,
    base_id text,
    base_length integer,
    base_start integer,
    created_at integer not null,
    title text not null
);
create index conversations_parent on conversations (parent_id) where parent_id is not null;
create index conversations_base on conversations (base_id) where base_id is not null;

create table messages (
    conversation integer not null references conversations (n) on delete cascade,
    n integer not null,
    body blob not null,
    primary key (conversation, n)
);

create table runs (
    n integer primary key,
    id text not null unique,
    conversation text not null references conversations (id) on delete cascade,
    root text not null,
    parent text not null,
    slot_turn integer,
    slot_index integer,
    open integer not null,
    turn integer not null,
    state text not null,
    created_at integer not null,
    ended_at integer,
    body blob not null
);
-- A parent's turns only grow, so this is also the order in which its children came; roots have parent '' and no turn.
create index runs_parent on runs (parent, slot_turn);
create index runs_conversation on runs (conversation);
create index runs_open on runs (open) where open = 1;

create table specs (
    run integer primary key references runs (n) on delete cascade,
    body blob not null
);

create table accounts (
    id text primary key not null,
    body blob not null
);

create table mail (
    run text not null,
    seq integer not null,
    body blob not null,
    primary key (run, seq)
);

create table outbox (
    key text primary key not null,
    run text not null,
    state text not null,
    next_at integer not null,
    body blob not null
);
create index outbox_open on outbox (state) where state in ('pending', 'sent', 'dead');

create table definitions (
    name text primary key not null,
    body blob not null
);

create table models (
    name text primary key not null,
    body blob not null
);

create table meta (
    key text primary key not null,
    value integer not null
);
