"""The store in one PostgreSQL database, for one process or for many workers.

The tables are in `migrations/`, described there:

- `trees`: a row for each tree: the head of its log, its epoch, its owner, and when it must be woken
- `workers`: a row for each start of a worker, with its heartbeat
- `inbox`: what comes to a tree from outside, until the commit that records it
- `events`: the log, numbered and hash-chained for each tree as in SQLite
- `runs`, `specs`, `conversations`, `messages`, `mail`, `outbox`, `board`: the state of the trees
- `definitions`, `models`: once for the database
- `artifacts`, `artifact_refs`: bytes under their hash, and the trees that name them
- `store`, `retinue_schema`: what this database is, and the migrations that were applied

All are in the first schema of the connection's `search_path`."""
