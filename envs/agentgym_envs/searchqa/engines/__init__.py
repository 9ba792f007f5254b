"""Search engines over a corpus, from queries to passages."""
