"""Tools: one port, `base.Tool`, and what is built on it. A tool never touches the engine; it
returns what it wants."""
