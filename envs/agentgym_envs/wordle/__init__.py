"""Wordle: find a hidden word of five letters among forty."""
