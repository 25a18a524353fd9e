"""A run on a terminal: the live view, plain lines, the keyboard, prompts and decisions."""
