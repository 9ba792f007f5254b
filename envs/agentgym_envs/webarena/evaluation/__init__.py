"""WebArena's evaluators: what an episode's answer and last page are worth."""
