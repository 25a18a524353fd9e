"""Several machines on one PostgreSQL: each tree is owned by one worker at a time."""
