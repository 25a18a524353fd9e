"""What every door shows: rows, states, words, totals, transcripts. Pure: made from recorded steps,
the same for the terminal, a page and an export."""
