"""Logging in to a server behind an address (OAuth 2.1, as the protocol's authorization chapter has
it)."""
