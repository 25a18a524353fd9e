"""The only loop: events in, steps through the core, commit, publish, perform."""
