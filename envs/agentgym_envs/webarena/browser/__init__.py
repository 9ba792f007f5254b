"""Real browser for text agents: pages as accessibility trees, actions in WebArena's syntax."""
