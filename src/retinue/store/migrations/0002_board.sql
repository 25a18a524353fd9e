-- The to-do list of a tree of runs, as the acts that made it. The key is that of the call that acted: repeated after a
-- crash, it finds itself here. Rows go with the run at the root of their tree.
create table board (
    n integer primary key,
    root text not null references runs (id) on delete cascade,
    key text not null,
    at integer not null,
    body blob not null,
    unique (root, key)
);
create index board_root on board (root); -- in fact on (root, n)
