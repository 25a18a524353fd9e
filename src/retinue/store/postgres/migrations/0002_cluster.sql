-- What several workers on one database need beside the owner, the epoch and the inbox of each tree.

-- `is_open`: something of the tree has not ended; only such a tree takes mail. `handed_over`: who had it last let go of it,
-- or was cut off; it has not crashed. `agent` is that of its root: a worker takes only trees whose agent it knows.
alter table trees
    add column is_open boolean not null default false,
    add column handed_over boolean not null default true,
    add column agent text not null default '';
create index trees_open on trees (root) where is_open;

-- Which process it is: `node` is where process numbers mean the same, `born` when the process was started.
alter table workers
    add column node text not null default '',
    add column pid integer not null default 0,
    add column born text not null default '';

-- Why something from an inbox was refused, for the client that waits for the answer.
create table refusals (
    n bigint primary key,
    why text not null,
    at timestamptz not null default now()
);

-- Each time that a tree was taken from a worker that had not let go of it.
create table takeovers (
    root text not null,
    epoch bigint not null,
    former uuid not null,
    owner uuid not null,
    crashed boolean not null,
    at timestamptz not null default clock_timestamp(),
    primary key (root, epoch)
);
create index takeovers_at on takeovers (at);

-- Slots of the lanes that trees share: who holds one, and who queues for one, in the order of `n`.
create table lane_slots (
    lane text not null,
    size integer not null,
    run text not null,
    root text not null,
    ticket bigint not null,
    is_back boolean not null,
    held boolean not null default false,
    n bigint generated always as identity,
    primary key (lane, run)
);
create index lane_slots_next on lane_slots (lane, held, is_back desc, n);
create index lane_slots_root on lane_slots (root);

-- What agents are built from on every node, by their stamps.
create table plans (
    stamp text primary key,
    body bytea not null
);
