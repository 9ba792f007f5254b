"""Training and evaluation jobs: every job starts from one checked config."""
