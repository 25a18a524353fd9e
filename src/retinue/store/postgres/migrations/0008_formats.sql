-- The highest number of the log's format among the workers that have driven a tree: see cluster/tree_format.py.
alter table trees add column format integer not null default 0;
