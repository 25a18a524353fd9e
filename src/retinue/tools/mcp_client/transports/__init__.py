"""How messages travel: over the pipes of a process, or over HTTP."""
