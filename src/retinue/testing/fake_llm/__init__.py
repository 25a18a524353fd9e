"""A provider that answers from a script, in four dialects, over real HTTP."""
