"""Rollouts: episodes in which an agent acts in environments."""
