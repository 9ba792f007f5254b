"""Where text, tokens and environments meet: episodes and their collection."""
