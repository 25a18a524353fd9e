"""Five dialects over one machine: each family is a set of tools with the names, shapes and limits
of one document."""
