"""WebArena's evaluators, which score the answer and the last page of an episode."""
