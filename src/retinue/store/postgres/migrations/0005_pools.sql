-- What workers use together of one account at a provider: what is left of a minute's calls and tokens (null: all), as of
-- `filled_at`, and until when no call may start. The row is locked while something is leased.
create table pools (
    name text primary key,
    requests double precision,
    tokens double precision,
    filled_at timestamptz not null default clock_timestamp(),
    paused_until timestamptz not null default '-infinity',
    why text not null default ''
);

-- How many calls at a time each worker may have under way in an account. What a dead worker has is free.
-- `lacks`: it waits for a part of the minute, as of `asked_at`. Who was given something longest ago is next.
create table chunks (
    pool text not null,
    holder uuid not null,
    calls integer not null default 0,
    wanted integer not null default 0,
    lacks boolean not null default false,
    asked_at timestamptz not null default clock_timestamp(),
    given_at timestamptz not null default clock_timestamp(),
    primary key (pool, holder)
);
