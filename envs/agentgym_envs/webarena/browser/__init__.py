"""A real browser for text agents: pages as accessibility trees, actions as WebArena writes them."""
