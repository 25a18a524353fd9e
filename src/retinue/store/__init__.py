"""Where the log lives: one port, `base.Store`, and its implementations."""
