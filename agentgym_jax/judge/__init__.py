"""Rewards from a judge: a model behind a chat endpoint that scores finished episodes by a rubric."""
