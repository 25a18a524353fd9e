"""Benchmarks: each is a ratio inside one run, or a limit that does not depend on the machine's
mood."""
