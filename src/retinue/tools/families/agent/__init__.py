"""The family `agent`: children in the background."""
