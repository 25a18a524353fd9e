"""Full-screen programs: the table of runs, and a conversation."""
