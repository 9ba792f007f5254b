"""The policy network: decoder, cache, log-probabilities and weights."""
