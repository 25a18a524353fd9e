"""What stands between a run and the machine: paths that stay beneath their root, and processes that
cannot leave."""
