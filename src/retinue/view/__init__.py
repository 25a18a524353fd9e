"""What every client shows: rows, states, texts, totals, transcripts. Pure: made from recorded
steps, the same for the terminal, a page and an export."""
