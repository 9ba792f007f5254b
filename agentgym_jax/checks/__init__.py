"""Checks of values and of requests."""
