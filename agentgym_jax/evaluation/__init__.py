"""Evaluation of a policy on a fixed set of tasks."""
