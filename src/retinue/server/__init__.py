"""Doors on the host's application: an address of its own, or a place in somebody's service."""
