"""Files on disk become agents: definitions in seven dialects, AGENTS.md, and skills. A file is
data: it is read, never obeyed, and what is wrong with it is a complaint with a line, never an
exception."""
