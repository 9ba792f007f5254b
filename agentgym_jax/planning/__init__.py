"""Ahead-of-time compilation of a run's programs for accelerators that are not present."""
