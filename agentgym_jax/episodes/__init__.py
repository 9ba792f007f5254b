"""Finished episodes and their packed batches."""
