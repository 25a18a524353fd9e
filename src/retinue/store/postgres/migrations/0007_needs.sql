-- What the worker that drives a tree must offer: labels, and directories (with a slash first).
alter table trees add column needs text[] not null default '{}';
