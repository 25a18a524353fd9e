"""What the map of a tree says, computed from its facts."""
