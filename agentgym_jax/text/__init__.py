"""Converts between text and token ids: tokenizers and append-only chat rendering."""
