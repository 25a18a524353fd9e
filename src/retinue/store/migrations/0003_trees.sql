-- Each tree of runs has a log of its own: its own numbers from 1 on, and its own hash chain. `seq` is the position over
-- all trees, for whoever watches everything; it only grows, and has holes where trees were forgotten.
--
-- A tree is known by the id of the run at its root; "" is what concerns the whole store. `last` and `chain` are those of
-- its last event. Events up to `cut` were deleted: `cut_chain` is what the next one hangs on. Of a tree that was
-- forgotten this row is all that is left.
create table trees (
    n integer primary key,
    root text not null unique,
    last integer not null,
    chain blob not null,
    cut integer not null default 0,
    cut_chain blob,
    forgotten_at integer
);

-- The rows of this table are copied into the two below by `sqlite_migrate`, which then drops it.
drop index events_owner;
alter table events rename to events_2;

-- `digest` is the hash of the body, `chain` that of the tree's previous chain, the number, the time, the digest and the
-- run: without its body (that of a child that was not to be kept) a row holds its place in the chain.
create table events (
    seq integer primary key,
    tree integer not null,
    number integer not null,
    run text not null,
    owner integer,
    at integer not null,
    digest blob not null,
    chain blob not null
);

-- Apart from the rows that stay, so that whole pages become free when bodies are deleted.
create table bodies (
    seq integer primary key,
    body blob not null
);

-- Which trees name an artifact (32 bytes of hash). One that nobody names any more is deleted.
create table artifact_refs (
    sha256 blob not null,
    tree integer not null,
    primary key (sha256, tree)
);
create index artifact_refs_tree on artifact_refs (tree);

-- In fact on (root, n): everything below a root, in the order in which it came.
create index runs_root on runs (root) where parent <> '';
create index outbox_run on outbox (run);
