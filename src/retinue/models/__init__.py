"""Models: one port, `base.Model`, and the ways to speak to one."""
