-- What all trees of a tenant may spend together (null: without a limit), and what those that have ended have spent.
create table budgets (
    tenant text primary key,
    tokens bigint,
    nanos bigint,
    spent_tokens bigint not null default 0,
    spent_nanos bigint not null default 0
);

-- What each open tree of such a tenant was lent of it, and has spent: the second is written in the tree's own commits.
create table loans (
    root text primary key,
    tenant text not null,
    tokens bigint not null default 0,
    nanos bigint not null default 0,
    spent_tokens bigint not null default 0,
    spent_nanos bigint not null default 0
);
create index loans_tenant on loans (tenant);
