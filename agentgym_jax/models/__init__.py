"""The policy network: decoder, cache, log-probabilities, weights."""
