"""Channels: where results go that no one waits for. One port, `base.Channel`."""
