"""A real process is killed at any moment and started again until its work is done; then everything
is counted."""
