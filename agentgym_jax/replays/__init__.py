"""Replays of recorded episodes that continue from a chosen turn."""
