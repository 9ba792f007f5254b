"""Maze: walk through a fixed maze, described in text by position and walls."""
