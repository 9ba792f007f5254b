"""Conversations and the input pipeline."""
