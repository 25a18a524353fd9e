"""What a change to a tree is, definition by definition, and what checks say of it."""
