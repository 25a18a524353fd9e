"""What protects the machine from a run: paths that stay beneath their root, and processes that
cannot leave."""
