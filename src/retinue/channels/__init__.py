"""Channels: where results go that nobody waits for. One port, `base.Channel`."""
