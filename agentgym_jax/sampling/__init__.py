"""Token generation with a live key/value cache, independent of text and environments."""
