-- The account of a run stands in its row: it changes with nearly every step, as the row does, and a table of its own made
-- two more pages of each commit.
alter table runs add column account blob;
update runs set account = (select body from accounts where accounts.id = runs.id);
drop table accounts;
