"""Conversations, preference pairs, tasks, and the input pipeline."""
