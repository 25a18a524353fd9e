"""What a source tree says by its syntax: definitions, calls, imports and tests of each file, from
tree-sitter, and what follows from them. Nothing of a tree is run, and nothing here knows runs."""
