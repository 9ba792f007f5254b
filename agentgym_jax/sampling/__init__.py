"""Token generation with a key/value cache that is kept across the turns of an episode."""
