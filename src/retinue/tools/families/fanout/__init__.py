"""The family `fanout`: tasks in parallel."""
