-- The last transaction of each process that writes, by a count of its own. A connection that is cut says nothing of what was
-- being committed: this row does, after a restart of the server too, where the numbers of transactions that never reached
-- its log are given again to others.
create table writers (
    id uuid primary key,
    n bigint not null default 0,
    at timestamptz not null default now()
) with (fillfactor = 50);
