"""The nouns of bookkeeping: accounts, entries, money."""
