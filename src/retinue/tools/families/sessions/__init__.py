"""The family `sessions`: children in sessions of their own."""
