"""The family `fanout`: tasks side by side."""
