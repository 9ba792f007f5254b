"""Optimiser, train state, update step and checkpoints."""
