"""Maze: walk through a fixed maze by position and walls, told and played in text."""
