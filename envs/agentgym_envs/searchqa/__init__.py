"""Deep search: answer questions with the help of a search engine."""
