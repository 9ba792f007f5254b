"""Token generation with a live key/value cache. Knows tokens, not text or environments."""
