"""Training jobs: each is only the order of things."""
