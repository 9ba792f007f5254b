"""Scores of a policy over a set of tasks."""
